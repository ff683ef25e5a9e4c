"""Rotated credentials: a client uses what its files hold now, as long as that leads to the same cluster."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import struct
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from windowbox.clients.kubernetes import credentials
from windowbox.clients.kubernetes.credentials import Credentials
from windowbox.clients.kubernetes.kubelibrary import Configuration
from windowbox.errors import Malformed, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import NAMESPACES, Resource

logger = logging.getLogger(__name__)

_LOOK = 60.0
"""Seconds between two comparisons of the files without an event: the interval of the library."""
_GRACE = 600.0
"""Seconds that a former session stays open for its requests: longer than any watch."""
_REMEDY = "restart this process if that is intended, else correct the file"


class Client(Protocol):
    """A client of an API server, as far as rotation needs it."""

    @property
    def host(self) -> str: ...

    async def get(self, resource: Resource, namespace: str, name: str) -> Object: ...

    def use(
        self, configuration: Configuration, trust: str | None, session: credentials.Session | None = None
    ) -> None: ...


class Rotation:
    """The credentials of one client, which follow their files."""

    def __init__(
        self,
        client: Client,
        kubeconfig: Path | None,
        context: str | None,
        current: Credentials,
        session: contextlib.AsyncExitStack,
        make: Callable[[Configuration, credentials.Session], Client],
        *,
        moves: bool = True,
    ) -> None:
        """With `moves`, an API server that has moved to another address is followed."""
        self._client = client
        self._kubeconfig = kubeconfig
        self._context = context
        self._current = current
        self._known_uid = ""
        self._refused: Mapping[Path, str] = {}
        self._session = session
        self._closing: dict[asyncio.Task[None], contextlib.AsyncExitStack] = {}
        self._make = make
        self._moves = moves

    async def aclose(self) -> None:
        """Close all sessions."""
        closing = dict(self._closing)
        for task in closing:
            task.cancel()
        if closing:
            await asyncio.wait(closing)
        for session in (*closing.values(), self._session):
            await session.aclose()

    async def follow(self) -> None:
        """Give the client new credentials whenever the files change, for ever."""
        while True:
            try:
                paths = self._current.files.keys()
                async with watched(paths) as changed:
                    while self._current.files.keys() == paths:
                        changed.clear()
                        await self._look()
                        if self._moves and not self._known_uid:
                            # Read the identity of the cluster early: a server that has moved no longer
                            # answers. A starting API server answers Forbidden until it has loaded its RBAC
                            # rules.
                            with contextlib.suppress(WindowboxError):
                                self._known_uid = await _uid(self._client)
                        # There is no event where inotify is exhausted, from a single file that is mounted,
                        # from network mounts, and from a folder that was recreated.
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(_LOOK):
                                await changed.wait()
            except Exception:  # OSError of inotify, YAML of another form than kubeconfigs have, or a bug
                # Without this task the client would keep credentials that expire.
                logger.exception("credentials of %s: again in %.0f s", self._client.host, _LOOK)
                await asyncio.sleep(_LOOK)

    async def _look(self) -> None:
        try:
            if await credentials.digests(self._kubeconfig) in (self._current.files, self._refused):
                return
            # If our context is gone, the current one counts: it may have been renamed.
            context = self._current.context
            if context and not self._context and not await credentials.has_context(self._kubeconfig, context):
                context = None
            found = await credentials.read(self._kubeconfig, context)
        except Malformed as error:
            # Several files are replaced one after another.
            logger.warning("changed credentials are not used: %s", error)
            return
        if await self._leads_to_same_cluster(found):
            await self._use(found)

    async def _use(self, found: Credentials) -> None:
        session = None
        if found.connection != self._current.connection:
            opened = contextlib.AsyncExitStack()
            session = await opened.enter_async_context(found.session())
            closing = asyncio.create_task(_close_later(self._session))
            self._closing[closing] = self._session
            closing.add_done_callback(self._closing.pop)
            self._session = opened
        self._client.use(found.configuration, found.trust, session)
        self._current = found
        logger.info("credentials of %s have changed", self._client.host)

    async def _leads_to_same_cluster(self, found: Credentials) -> bool:
        """Whether the server is the same, or one with the same objects."""
        former, now = self._client.host, (found.configuration.host or "").rstrip("/")
        if former == now:
            return True
        kept = f"{self._kubeconfig} leads to {now} instead of {former}: the former credentials are kept"
        try:
            async with found.session() as session:
                theirs = await _uid(self._make(found.configuration, session))
                try:
                    self._known_uid = await _uid(self._client)
                except WindowboxError:
                    if not self._known_uid:  # otherwise the uid that it reported last
                        raise
                same = theirs == self._known_uid
        except WindowboxError as error:
            logger.error(
                "%s, for it is unknown whether that is the same cluster (%s); %s", kept, error, _REMEDY
            )
            return False
        if not same:
            self._refused = found.files
            logger.error("%s, for that is another cluster; %s", kept, _REMEDY)
        return same


async def _close_later(session: contextlib.AsyncExitStack) -> None:
    await asyncio.sleep(_GRACE)
    await session.aclose()


async def _uid(client: Client) -> str:
    """The uid of the namespace kube-system, which identifies a cluster."""
    return (await client.get(NAMESPACES, "", "kube-system")).uid


_CLOSE_WRITE, _MOVED_TO, _CREATE = 0x8, 0x80, 0x100
_MASK = _CLOSE_WRITE | _MOVED_TO | _CREATE
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_EVENTS = 1 << 16
_HEAD = struct.Struct("iIII")
_PROJECTED = "..data"
"""The link by which kubelet exchanges all files of a volume at once."""


@contextlib.asynccontextmanager
async def watched(paths: Collection[Path]) -> AsyncIterator[asyncio.Event]:
    """An event that is set whenever one of these files may have changed.

    Their folders are watched, because a file that is replaced is another one.
    """
    changed = asyncio.Event()
    places = {path.absolute() for path in paths} | {path.resolve() for path in paths}
    if (descriptor := _opened({place.parent for place in places})) is None:
        yield changed
        return
    loop, names = asyncio.get_running_loop(), {_PROJECTED, *(place.name for place in places)}

    def noticed() -> None:
        with contextlib.suppress(BlockingIOError):
            if not names.isdisjoint(_names(os.read(descriptor, _EVENTS))):
                changed.set()

    loop.add_reader(descriptor, noticed)
    try:
        yield changed
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _names(events: bytes) -> Iterator[str]:
    """The names of the files that these events are about."""
    place = 0
    while place < len(events):
        *_, length = _HEAD.unpack_from(events, place)
        place += _HEAD.size + length
        yield os.fsdecode(events[place - length : place].rstrip(b"\0"))


def _opened(folders: set[Path]) -> int | None:
    """An inotify descriptor that watches these folders; None where there is no inotify."""
    library = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor: int = library.inotify_init1(_FLAGS)
    except AttributeError:
        logger.info("this system has no inotify: changed credentials are found within a minute")
        return None
    if descriptor < 0:
        reason = os.strerror(ctypes.get_errno())
        logger.warning("no inotify instance (%s): changed credentials are found within a minute", reason)
        return None
    for folder in folders:
        if library.inotify_add_watch(descriptor, os.fsencode(folder), _MASK) < 0:
            logger.warning("%s cannot be watched: %s", folder, os.strerror(ctypes.get_errno()))
    return descriptor
