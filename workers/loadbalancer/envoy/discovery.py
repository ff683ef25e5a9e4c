"""Discovery: each Envoy gets its resources over a stream, at one Unix socket for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

from bus.leases import leases
from windowbox.clients.xds import server
from windowbox.clients.xds.server import Stream
from windowbox.errors import Malformed, Refused, Unreachable
from workers.loadbalancer.envoy import hostfolders
from workers.loadbalancer.envoy.delta import Delta, Kind, Resources
from workers.loadbalancer.envoy.hostfolders import SOCKET
from workers.loadbalancer.launcher import programs

logger = logging.getLogger(__name__)

_FIRST = 10.0
"""Seconds for the first request of a stream."""
_ANSWER = 60.0
"""Seconds for Envoy to accept or reject a response. It is busy with one for a second at most."""


def node_id(name: str, generation: int) -> str:
    """By which an Envoy says which one it is."""
    return f"{name}/{generation}"


class Session:
    """The resources of one Envoy, over all of its streams."""

    def __init__(self, node: str) -> None:
        self.delta = Delta()
        self._node = node
        self._connected = False
        self._changed = asyncio.Event()

    def want(self, wanted: Mapping[Kind, Resources]) -> None:
        """Have Envoy get exactly these resources of these kinds."""
        self.delta.want(wanted)
        self.notify()

    def release(self) -> None:
        """Send listeners, too."""
        self.delta.held = False
        self.notify()

    def notify(self) -> None:
        """Look at what can be sent, and wake all who wait."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def change(self) -> asyncio.Event:
        """Set with the next change of what Envoy has, or should have."""
        return self._changed

    async def settled(self, patience: float) -> bool:
        """Wait until Envoy has accepted or refused everything. False if it has not after `patience`."""
        return await self.until(lambda: self.delta.settled, patience)

    async def until(self, holds: Callable[[], bool], patience: float) -> bool:
        """Wait until this holds. False if it does not after `patience`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not holds():
                    await self._changed.wait()
        return holds()

    async def serve(self, stream: Stream, first: server.Request) -> None:
        """Serve one stream. Refused if Envoy has one already."""
        if self._connected:
            raise Refused(f"{self._node} has a stream already")
        self._connected = True
        self.delta.begin()
        sending = asyncio.create_task(self._send(stream), name=f"discovery of {self._node}")
        receiving = asyncio.create_task(self._receive(stream, first))
        try:
            done, _ = await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._connected = False
            for task in (sending, receiving):
                task.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)

    async def _receive(self, stream: Stream, first: server.Request) -> None:
        request: server.Request | None = first
        while request is not None:
            try:
                rejected = self.delta.received(request)
            except ValueError as error:
                raise Malformed(f"{self._node} asks for {request.kind}") from error
            if rejected:
                logger.info("%s: Envoy rejects resources: %s", self._node, rejected)
            self.notify()
            request = await stream.receive()

    async def _send(self, stream: Stream) -> None:
        while True:
            changed = self._changed
            for response in self.delta.responses():
                leases.check()  # a successor knows more
                await stream.send(response)
                logger.debug(
                    "%s: %d resources sent, %d removed: %s",
                    *(self._node, len(response.resources), len(response.removed), response.kind),
                )
            try:
                async with asyncio.timeout(_ANSWER if self.delta.awaits else None):
                    await changed.wait()
            except TimeoutError as error:
                raise Unreachable(f"{self._node} does not answer for {_ANSWER:g} s") from error


class Discovery:
    """The sessions of all Envoys whose edges this process keeps."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._listen: Callable[[], Awaitable[None]] | None = None
        """Until it listens."""
        self._beginning = asyncio.Lock()

    def session(self, name: str, generation: int) -> Session:
        """That of an Envoy; a new one if it has none."""
        node = node_id(name, generation)
        return self._sessions.setdefault(node, Session(node))

    def forget(self, name: str, generation: int) -> None:
        """The Envoy has ended: another one of this generation begins anew."""
        self._sessions.pop(node_id(name, generation), None)

    def describe(self) -> dict[str, object]:
        """How much Envoys have taken, for people."""
        found = [session.delta for session in self._sessions.values()]
        return {"taken": sum(one.accepted for one in found), "settled": all(one.settled for one in found)}

    @contextlib.asynccontextmanager
    async def serving(self, folder: Path) -> AsyncIterator[None]:
        """Serve at the socket in this folder once this has begun, until the end of the block."""
        async with contextlib.AsyncExitStack() as stack:

            async def listen() -> None:
                own = _own_socket(folder)
                path = stack.enter_context(hostfolders.short(own))
                await stack.enter_async_context(server.serving(path, self._serve))
                _link(own)

            self._listen = listen
            try:
                yield
            finally:
                self._listen = None

    async def begin(self) -> None:
        """Listen from now on, in place of any other process. Call it before the first Envoy connects.

        A process without Envoys does without gRPC, which takes 13 MB of memory and seven threads.
        """
        async with self._beginning:
            if self._listen:
                await self._listen()
                self._listen = None

    async def _serve(self, stream: Stream) -> None:
        try:
            async with asyncio.timeout(_FIRST):
                first = await stream.receive()
        except TimeoutError as error:
            raise Refused(f"a stream says nothing for {_FIRST:g} s") from error
        if first is None:
            return
        session = self._sessions.get(first.node)
        if session is None:
            raise Refused(f"there is no Envoy {first.node[:64]!r}")
        await session.serve(stream, first)


def _own_socket(folder: Path) -> Path:
    """Each process has a socket of its own, and a link leads to that of the last one.

    gRPC removes its socket when it ends, also when another process listens there already.
    """
    with programs.writing(folder):
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        for left in folder.glob(f"*-{SOCKET}"):
            left.unlink(missing_ok=True)  # of a process that has died, or hangs
    return folder / f"{secrets.token_hex(4)}-{SOCKET}"


def _link(own: Path) -> None:
    with programs.writing(own):
        link = own.with_name(f".{own.name}")
        link.symlink_to(own.name)
        os.replace(link, own.with_name(SOCKET))
