"""What images for containers are made of, where none can be pulled: programs of this machine, and texts."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path


def program(name: str) -> Path:
    found = shutil.which(name)
    assert found, name
    return Path(found)


def libraries(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries that these need, and the loader."""
    reported = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False
    ).stdout
    return {Path(path) for path in re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", reported, re.MULTILINE)}


def add_link(image: tarfile.TarFile, name: str, target: str) -> None:
    """A link, unless it would lead to itself."""
    if name != target:
        member = tarfile.TarInfo(name.lstrip("/"))
        member.type, member.linkname = tarfile.SYMTYPE, target
        image.addfile(member)


def add_text(image: tarfile.TarFile, name: str, text: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(text)
    image.addfile(member, io.BytesIO(text.encode()))


def add_folder(image: tarfile.TarFile, name: str, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, mode
    image.addfile(member)
