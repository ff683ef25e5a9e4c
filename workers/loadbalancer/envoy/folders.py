"""Folders of this host with the files of Envoys."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from bus.leases import leases
from bus.transport import finishing
from windowbox.errors import Unreachable


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A disk that is full, or a folder that somebody changed, is tried again; the other Envoys go on."""
    try:
        yield
    except OSError as error:
        raise Unreachable(f"write to {folder}: {error.strerror or error}") from error


async def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files in a thread: a renaming waits for a busy disk, for more than a second.

    However often it is cancelled, the thread is awaited: its files would replace those of a later write.
    """
    await finishing.to_end(asyncio.to_thread(_write_as_owner, folder, files))


def _write_as_owner(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        leases.check()  # what a successor wrote is newer
        write_now(folder, {name: content})


def write_now(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files, in the order given."""
    with writing(folder):
        for name, content in files.items():
            temporary = folder / f".{name}.new"
            temporary.write_bytes(content)
            # Envoy looks at a file again when another is renamed to it, and only then.
            os.replace(temporary, folder / name)
