"""Live updates: each place of the page is read and rendered once for all who look at it, and only then."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bus.leases import guard
from bus.transport.connection import Bus, translated
from ui.view import Params, Source, View
from windowbox.errors import TransientError, WindowboxError

logger = logging.getLogger(__name__)

_TOGETHER = 0.05
"""Seconds in which changes are gathered: most come in groups."""
_PAUSE = 0.25
"""Seconds between two updates of a place."""
_PATIENCE = 10.0
MOST_PLACES = 100
"""Places that are followed at once."""

Render = Callable[[View, Params, dict[str, object]], str]


class Rendered(NamedTuple):
    """The HTML of a view, and what tells it from others."""

    html: str
    digest: str

    @classmethod
    def of(cls, html: str) -> Rendered:
        return cls(html, hashlib.sha256(html.encode()).hexdigest()[:16])


class Place(NamedTuple):
    """A view with its parameters."""

    view: View
    params: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, view: View, params: Params) -> Place:
        return cls(view, tuple(sorted(params.items())))


@dataclass(eq=False)
class Viewer:
    """Somebody who looks at a place. Of several updates that come before it reads, it gets the last one."""

    newest: Rendered
    news: asyncio.Event


class Full(TransientError):
    """More places are looked at than are followed at once."""


class Hub:
    """Reads and renders places as they change, for those who look."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self.source: Source
        """Set before the first reading."""
        self._channels: dict[Place, _Channel] = {}

    @property
    def viewers(self) -> int:
        return sum(len(one.viewers) for one in self._channels.values())

    def changed(self, topic: str) -> None:
        """Something of this topic has changed in the mirror."""
        for channel in self._channels.values():
            if topic in channel.place.view.topics:
                channel.stirred.set()

    async def rendered(self, place: Place) -> Rendered:
        """The place as it is now; as it was last, if somebody looks at it."""
        channel = self._channels.get(place)
        if channel and channel.last and not channel.stirred.is_set():
            return channel.last
        return await self.fresh(place)

    async def fresh(self, place: Place) -> Rendered:
        async with asyncio.timeout(_PATIENCE):
            variables = await place.view.read(self.source, dict(place.params))
        return Rendered.of(self._render(place.view, dict(place.params), dict(variables)))

    @contextlib.asynccontextmanager
    async def looking(self, place: Place) -> AsyncIterator[Viewer]:
        """Look at a place. The first of its viewers starts the reading, the last one ends it."""
        channel = self._channels.get(place)
        if channel is None:
            if len(self._channels) >= MOST_PLACES:
                raise Full("too many places are looked at: close other windows of this page", retry_after=5)
            channel = self._channels[place] = _Channel(self, place)
            channel.task = asyncio.create_task(
                guard.kept(f"page {place.view.name}", channel.run), name=f"page {place.view.name}"
            )
        viewer = Viewer(channel.last or await self.fresh(place), asyncio.Event())
        channel.viewers.add(viewer)
        try:
            yield viewer
        finally:
            channel.viewers.discard(viewer)
            if not channel.viewers and self._channels.get(place) is channel:
                del self._channels[place]
                channel.task.cancel()
                await asyncio.wait([channel.task])


class _Channel:
    """A place that somebody looks at."""

    def __init__(self, hub: Hub, place: Place) -> None:
        self._hub = hub
        self.place = place
        self.viewers: set[Viewer] = set()
        self.stirred = asyncio.Event()
        self.last: Rendered | None = None
        self.task: asyncio.Task[None]

    async def run(self) -> None:
        """Read and render after each change; never returns."""
        view, params = self.place.view, dict(self.place.params)
        async with contextlib.AsyncExitStack() as stack:
            for subject in view.heard(params):
                await stack.enter_async_context(
                    _hearing(self._hub.source.mirror.bus, subject, self.stirred.set)
                )
            while True:
                self.stirred.clear()
                with contextlib.suppress(WindowboxError, TimeoutError):
                    self._tell(await self._hub.fresh(self.place))
                await asyncio.sleep(_PAUSE)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(view.interval):
                        await self.stirred.wait()
                await asyncio.sleep(_TOGETHER)

    def _tell(self, rendered: Rendered) -> None:
        if self.last == rendered:
            return
        self.last = rendered
        for viewer in self.viewers:
            if viewer.newest != rendered:
                viewer.newest = rendered
                viewer.news.set()


@contextlib.asynccontextmanager
async def _hearing(bus: Bus, subject: str, act: Callable[[], None]) -> AsyncIterator[None]:
    """Call `act` with each message that is published to a subject."""
    with translated(f"subscribe to {subject}"):
        subscription = await bus.client.listen(subject, lambda _: act())
    try:
        yield
    finally:
        with contextlib.suppress(WindowboxError), translated("unsubscribe"):
            await subscription.unsubscribe()


def events(rendered: Rendered) -> Iterator[bytes]:
    """An update as Server-Sent Events write it."""
    yield f"id: {rendered.digest}\n".encode()
    for line in rendered.html.splitlines():
        yield b"data: " + line.encode() + b"\n"
    yield b"\n"
