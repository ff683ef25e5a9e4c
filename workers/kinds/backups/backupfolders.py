"""The adapter for the folders of backups: all below one root, nothing outside of it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from clouds.frame.services.backups import Retention, next_retention
from windowbox.errors import Malformed, TransientError, WindowboxError
from workers.kinds.backups import retentions

T = TypeVar("T")

_MODE = 0o775
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE = 4
_LONGEST = 255
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_CLOSED = frozenset({errno.EACCES, errno.EPERM})
_NOT_A_FOLDER = frozenset({errno.ELOOP, errno.ENOTDIR})
"""The error codes when a link or a file is in the place of a folder."""


def checked(field: str, name: object) -> str:
    """The name, if it is valid for a folder below the root. `field` is its field, for the error."""
    if not isinstance(name, str) or not name:
        raise Malformed(f"{field} is empty: give the name of a folder")
    if name in (".", "..") or "/" in name or not name.isprintable():
        raise Malformed(
            f"{field}: {name!r} cannot be the name of a folder: it must not be '.' or '..', nor hold slashes "
            "or control characters"
        )
    if len(os.fsencode(name)) > _LONGEST:
        raise Malformed(f"{field}: {name!r} is longer than {_LONGEST} bytes; give a shorter name")
    return name


class BackupFolders:
    """Folders below `root`, which the operator creates.

    Each folder is opened relative to its parent (openat) and never through a symbolic link: a link that is
    swapped in during the work ends it with an error.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root
        # A separate thread pool: a hanging disk must not block name resolution in the default pool.
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="backups")

    async def make(self, bucket: str) -> None:
        """Create the folder if it does not exist, with access for its group."""
        await self._apart(lambda _: self._make(bucket))

    async def retain(self, bucket: str, wanted: Retention | None) -> None:
        """Keep the objects of a bucket for a time. Malformed if an earlier retention is locked."""
        await self._apart(lambda _: self._retain(bucket, wanted))

    async def remove(self, *path: str) -> None:
        """Remove a folder with its content. Idempotent, also after an interruption.

        An error, and nothing is removed, if the bucket retains something of it.
        """
        await self._apart(lambda stop: self._remove(path, stop))

    async def remove_empty(self, bucket: str) -> bool:
        """Remove an empty folder. False if it is not empty."""
        return await self._apart(lambda _: self._remove_empty(bucket))

    async def _apart(self, act: Callable[[threading.Event], T]) -> T:
        """Run it in a thread, which stops soon after a cancellation."""
        stop = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, act, stop)
        finally:
            stop.set()

    def _make(self, bucket: str) -> None:
        with self._translated(bucket), self._opened() as root:
            with contextlib.suppress(FileExistsError):
                os.mkdir(bucket, _MODE, dir_fd=root)
            with _within(root, bucket) as folder:
                if stat.S_IMODE(os.fstat(folder).st_mode) != _MODE:
                    os.fchmod(folder, _MODE)  # mkdir applied our umask

    def _remove(self, path: tuple[str, ...], stop: threading.Event) -> None:
        *above, name = path
        with self._translated("/".join(path)), self._opened() as root:
            retention = retentions.read(root, path[0])
            with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as stack:
                folder = root
                for one in above:
                    folder = stack.enter_context(_within(folder, one))
                with _within(folder, name) as found:
                    if retention:
                        retentions.check(found, retention, "/".join(path), stop)
                    _clear(found, stop)
                os.rmdir(name, dir_fd=folder)
            if not above:
                retentions.write(root, name, None)

    def _remove_empty(self, bucket: str) -> bool:
        with self._translated(bucket), self._opened() as root:
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(bucket, dir_fd=root)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                return False
            retentions.write(root, bucket, None)
        return True

    def _retain(self, bucket: str, wanted: Retention | None) -> None:
        with self._translated(bucket), self._opened() as root:
            before = retentions.read(root, bucket)
            after = next_retention(before, wanted)
            if after != before:
                retentions.write(root, bucket, after)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        if self._root is None:
            raise Malformed("backup.root is not set: name the folder of all buckets")
        try:
            root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Malformed(
                f"backup.root {self._root} is no folder of this host: make it, or correct the setting"
            ) from error
        try:
            yield root
        finally:
            os.close(root)

    @contextlib.contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _meaning(self._root, name, error) from error


@contextlib.contextmanager
def _within(folder: int, name: str) -> Iterator[int]:
    found = os.open(name, _FOLDER, dir_fd=folder)
    try:
        yield found
    finally:
        os.close(found)


def _clear(top: int, stop: threading.Event) -> None:
    """Remove the content of a folder.

    The content of subfolders is moved up first, so that nothing is deeper than two levels: stack and files
    stay bounded, however deep folders are nested.
    """
    while names := os.listdir(top):
        for name in names:
            if stop.is_set():
                return
            if not _gone(top, name):
                with contextlib.suppress(FileNotFoundError), _within(top, name) as folder:
                    _empty(folder, top, stop)


def _empty(folder: int, top: int, stop: threading.Event) -> None:
    for name in os.listdir(folder):
        if stop.is_set():
            return
        if not _gone(folder, name):
            os.rename(name, f".removed-{uuid.uuid4().hex}", src_dir_fd=folder, dst_dir_fd=top)


def _gone(folder: int, name: str) -> bool:
    """Remove a file, an empty folder, or a symbolic link itself. False for a folder with content."""
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True  # a concurrent run has removed it
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _meaning(root: Path | None, name: str, error: OSError) -> WindowboxError:
    """The error with its path and the remedy."""
    where = f"{name} in backup.root {root}"
    if error.errno in _FULL:
        return TransientError(
            f"{where}: {error.strerror}: free some space there, or move the root to a larger disk",
            codes=("ERR_INFRA_RESOURCES_DEPLETED",),
        )
    if error.errno == errno.EROFS:
        return Malformed(
            f"{where}: {error.strerror}: mount it writable, or set backup.root to another folder"
        )
    if error.errno in _CLOSED:
        return Malformed(f"{where}: {error.strerror}: let the user of this worker write there")
    if error.errno in _NOT_A_FOLDER:
        return Malformed(
            f"{where}: a link or a file stands where a folder has to be, and is not followed; remove it"
        )
    return TransientError(f"{where}: {error.strerror or error}")
