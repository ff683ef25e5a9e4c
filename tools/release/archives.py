"""Archives whose bytes depend on names and content alone."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def packed(files: Mapping[str, bytes | Path], time: int) -> bytes:
    """A tar.gz of these files, in the order of their names, with one time and no owner."""
    content = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=content, mode="wb", filename="", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(files):
            _add(archive, name, files[name], time)
    return content.getvalue()


def _add(archive: tarfile.TarFile, name: str, source: bytes | Path, time: int) -> None:
    data = source.read_bytes() if isinstance(source, Path) else source
    entry = tarfile.TarInfo(name)
    program = isinstance(source, Path) and source.stat().st_mode & 0o100
    entry.size, entry.mtime, entry.mode = len(data), time, 0o755 if program else 0o644
    archive.addfile(entry, io.BytesIO(data))
