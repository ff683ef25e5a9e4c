"""The retention of a bucket, in a file beside its folder: no loss of the bus unlocks it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import threading
import time
from dataclasses import asdict
from datetime import UTC, datetime

from clouds.frame.services.backups import Retention
from windowbox.errors import Malformed, TransientError

_DEEPEST = 50
"""Folders within each other that are searched: each takes an open file."""
_LATEST = 3600.0
"""Seconds until the next attempt, at most."""
_LONGEST = 1_000
"""Bytes of a file."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def read(root: int, bucket: str) -> Retention | None:
    name = _file(bucket)
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    except FileNotFoundError:
        return None
    with os.fdopen(file, "rb") as opened:
        try:
            found = json.loads(opened.read(_LONGEST))
            return Retention(float(found["period"]), bool(found["locked"]))
        except (ValueError, TypeError, KeyError) as error:
            raise Malformed(f"{name}, the retention of {bucket}, cannot be read: correct the file") from error


def write(root: int, bucket: str, retention: Retention | None) -> None:
    """Keep the retention of a bucket; None for none."""
    name = _file(bucket)
    if retention is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=root)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(f"{name}.new", flags, 0o644, dir_fd=root), "w") as new:
        json.dump({"bucket": bucket, **asdict(retention)}, new)
        new.flush()
        os.fsync(new.fileno())
    os.replace(f"{name}.new", name, src_dir_fd=root, dst_dir_fd=root)


def check(folder: int, retention: Retention, what: str, stop: threading.Event) -> None:
    """An error if a file in the folder is too young to be deleted."""
    left = _newest(folder, what, _DEEPEST, stop) + retention.period - time.time()
    if left <= 0:
        return
    until = datetime.fromtimestamp(time.time() + left, UTC)
    raise TransientError(
        f"googleapi: Error 403: {what} is subject to its bucket's retention policy and cannot be deleted "
        f"until {until:%Y-%m-%dT%H:%M:%SZ}, retentionPolicyNotMet",
        retry_after=min(left, _LATEST),
        codes=("ERR_INFRA_UNAUTHORIZED",),
    )


def _newest(folder: int, what: str, deepest: int, stop: threading.Event) -> float:
    """When a file in the folder changed last; 0 if there is none."""
    if not deepest:
        raise Malformed(f"{what} has more than {_DEEPEST} folders within each other: remove them by hand")
    newest = 0.0
    for name in os.listdir(folder):
        if stop.is_set():
            break
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                newest = max(newest, found.st_mtime)
                continue
            inner = os.open(name, _FOLDER, dir_fd=folder)
            try:
                newest = max(newest, _newest(inner, what, deepest - 1, stop))
            finally:
                os.close(inner)
    return newest


def _file(bucket: str) -> str:
    """A name that no bucket has."""
    return f".retention-{hashlib.sha256(bucket.encode()).hexdigest()[:32]}"
