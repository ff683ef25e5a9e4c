"""Feeds: the views of one kind in a process share one consumer, and each object is decoded once for all."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import NamedTuple

from bus import streams, subjects
from bus.messages import Announcement
from bus.transport import consumers
from bus.transport.connection import Bus

Take = Callable[[Announcement | None], None]
"""Takes one message; None marks the end of what the stream held at the beginning."""


class _View(NamedTuple):
    """A view that follows a feed."""

    take: Take
    context: Context
    """That of its task: `take` may start others, and the view may run under a lease."""
    failed: asyncio.Future[None]


class _Feed:
    """One reading of a kind of all clusters. Views may join until its first message comes."""

    def __init__(self, bus: Bus, kind: str, begun: Callable[[], None]) -> None:
        self._begun = begun
        self._views: list[_View] = []
        # Not under the lease of the view that comes first.
        self._reading = asyncio.create_task(self._read(bus, kind), name=f"read {kind}", context=Context())

    async def serve(self, take: Take) -> None:
        """Call `take` with each message, until an error of the bus or of `take`."""
        view = _View(take, copy_context(), asyncio.get_running_loop().create_future())
        self._views.append(view)
        try:
            await view.failed
        finally:
            self._views.remove(view)
            if not self._views:
                self._begun()
                self._reading.cancel()
                await asyncio.wait([self._reading])

    async def _read(self, bus: Bus, kind: str) -> None:
        filters = [subjects.seen_kind("*", kind), subjects.listed("*", kind)]
        try:
            async for stored in consumers.follow(bus, streams.OBJECTS, filters):
                self._begun()
                seen = Announcement(stored) if stored else None
                for view in self._views:
                    if not view.failed.done():
                        try:
                            view.context.run(view.take, seen)
                        except Exception as error:  # a bug of this view, which ends alone
                            view.failed.set_exception(error)
        except Exception as error:  # of the bus: raised at all views
            self._begun()
            for view in self._views:
                if not view.failed.done():
                    view.failed.set_exception(error)


_JOINABLE: weakref.WeakKeyDictionary[Bus, dict[str, _Feed]] = weakref.WeakKeyDictionary()
"""Feeds whose first message has not come yet, by kind."""


async def follow(bus: Bus, kind: str, take: Take) -> None:
    """Call `take` with what the bus holds of a kind in all clusters, then with each change.

    Ends with an error of the bus, or of `take`.
    """
    joinable = _JOINABLE.setdefault(bus, {})
    if kind not in joinable:
        feed = joinable[kind] = _Feed(bus, kind, lambda: _close(joinable, kind, feed))
    await joinable[kind].serve(take)


def _close(joinable: dict[str, _Feed], kind: str, feed: _Feed) -> None:
    if joinable.get(kind) is feed:
        del joinable[kind]
