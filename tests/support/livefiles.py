"""Files of running programs, some of which vanish while they are read."""

from __future__ import annotations

import os
from pathlib import Path


def below(folder: Path, *, without: frozenset[str] = frozenset()) -> list[Path]:
    """The files in a folder; not those in folders with these names."""
    found = []
    for name, folders, files in os.walk(folder):  # passes over a folder that vanishes
        folders[:] = [one for one in folders if one not in without]
        found += [Path(name, file) for file in files if Path(name, file).is_file()]
    return found


def read(path: Path) -> bytes:
    """The content of a file; empty if it has vanished."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def contents(folder: Path) -> bytes:
    """The contents of all files in a folder, concatenated."""
    return b"".join(read(path) for path in below(folder))
