"""Atomic writes of files, readable by the owner only where they hold secrets."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write `text` to `path` atomically: readers see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because a rename is atomic within one file system only.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        os.fchmod(handle, mode)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_private(path: Path, text: str) -> None:
    write(path, text, mode=0o600)
