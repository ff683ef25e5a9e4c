"""Folders of this host with the files of Envoys."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from windowbox.errors import Unreachable


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A disk that is full, or a folder that somebody changed, is tried again; the other Envoys go on."""
    try:
        yield
    except OSError as error:
        raise Unreachable(f"write to {folder}: {error.strerror or error}") from error
