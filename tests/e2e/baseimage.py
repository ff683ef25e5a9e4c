"""An image of this machine's own files, for where none can be pulled: Python, NATS, BIND, a shell, `ip`."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from sandbox.programs import binaries
from tests.support import imagefiles, wheels

_ROOT = Path(__file__).parents[2]
_SHELL = ("sh", "cat", "mkdir", "chown", "chmod", "rm", "wget", "ip")
_LEFT_OUT = {
    "site-packages", "dist-packages", "test", "idlelib", "tkinter", "__pycache__", "EXTERNALLY-MANAGED",
}  # fmt: skip
_USERS = "root:x:0:0::/:/bin/sh\nbind:x:53:53::/:/bin/sh\n"
_GROUPS = "root:x:0:\nbind:x:53:\n"
_PIP = "[global]\nno-index = true\nfind-links = /wheels\n"
PACKAGES = Path("/opt/packages")


def missing() -> str | None:
    """Why the image cannot be made here; None if it can."""
    lacking = [name for name in _SHELL if not shutil.which(name)]
    return f"{', '.join(lacking)}: not on this machine" if lacking else None


def python_folder() -> Path:
    """Where Python is, here and in the image."""
    return _python().parent


def _python() -> Path:
    """The installed one: a virtual environment may have a copy, which finds nothing without its folder."""
    return Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}").resolve()


def write(path: Path, others: Path) -> None:
    """Write the image's files, all at the places they have here, as a tar archive.

    What windowbox needs is installed already, and `others` is where its pip looks for the rest.
    """
    programs = [
        *map(imagefiles.program, _SHELL),
        *(binaries.find(name) for name in ("nats-server", "named", "dig")),
    ]
    python = _python()
    library = Path(sysconfig.get_path("stdlib"))
    libraries = [*library.glob("lib-dynload/*.so"), *(f for f in _installed() if f.suffix == ".so")]
    with tarfile.open(path, "w", dereference=True) as image:
        for program in {*programs, python}:
            image.add(program.resolve(), str(program))
        for name in _SHELL:
            imagefiles.add_link(image, f"/usr/bin/{name}", str(imagefiles.program(name)))
        imagefiles.add_link(image, "/bin/sh", str(imagefiles.program("sh")))
        imagefiles.add_link(image, str(python.parent / "python3"), python.name)
        for shared in imagefiles.libraries([*programs, python, *libraries]):
            image.add(shared.resolve(), str(shared))
        image.add(library, str(library), filter=_needed)
        for file in _installed():
            image.add(file, str(PACKAGES / file.relative_to(_purelib())))
        for wheel in others.iterdir():
            image.add(wheel, f"/wheels/{wheel.name}")
        for name, text in {"etc/passwd": _USERS, "etc/group": _GROUPS, "etc/pip.conf": _PIP}.items():
            imagefiles.add_text(image, name, text)
        for name, mode in {"tmp": 0o1777, "run": 0o755, "var/lib": 0o755}.items():
            imagefiles.add_folder(image, name, mode)


def _installed() -> list[Path]:
    """The files of the packages that windowbox needs, and of pip."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    names = wheels.required(["pip", *project["dependencies"]])
    return [file for name in sorted(names) for file in _files(name)]


def _files(name: str) -> Iterator[Path]:
    for file in importlib.metadata.files(name) or ():
        path = Path(str(file.locate())).resolve()
        if path.is_relative_to(_purelib()) and path.is_file() and "__pycache__" not in path.parts:
            yield path


def _purelib() -> Path:
    return Path(sysconfig.get_path("purelib")).resolve()


def _needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = set(Path(member.name).parts)
    return None if parts & _LEFT_OUT or any(part.startswith("config-") for part in parts) else member
