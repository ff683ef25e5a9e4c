"""Readiness: when Envoy serves the configuration, and if not, why."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windowbox.errors import TransientError
from windowbox.models.loadbalancers import Listener, LoadBalancer
from workers.loadbalancer.envoy import admin
from workers.loadbalancer.envoy.attachments import Running
from workers.loadbalancer.envoy.discovery import Session
from workers.loadbalancer.links import hostnetwork

_AT_ONCE = 64
_SLICE = 128
"""Load balancers that are looked at before the event loop gets its turn."""
_CONNECT_TIMEOUT = 1.0
_SHORTEST_PAUSE = 0.001
_LONGEST_PAUSE = 0.1
_CHECKING = 0.3
"""Seconds for first health checks before more endpoints are written. Dead ones must not delay others."""
_CAUSE_KNOWN = 3.0
"""Seconds to wait for a load balancer whose problem is known."""

_STARTING = "Envoy is being started"
_UNANSWERED = "Envoy has not taken it"
_UNCONNECTED = "no connection was made yet"
_WARMING = "Envoy waits for the first health check of its endpoints"


@dataclass(frozen=True)
class Applied:
    """A load balancer that Envoy serves, or does not serve for known reasons."""

    load_balancer: LoadBalancer
    problems: Mapping[str, str]
    """Why a port is not served: `80/TCP` → reason, for people."""
    occupied: Mapping[str, tuple[str, ...]]
    """By address, the ports (`80/TCP`) that other processes of the host hold there, not everywhere."""


@dataclass(frozen=True)
class _View:
    """The state of the listeners at one moment, by their names."""

    refused: Mapping[str, str]
    waiting: Mapping[str, str]

    def applied(self, lb: LoadBalancer, unprepared: Mapping[str, str]) -> Applied:
        """The load balancer with all problems of its listeners."""
        problems: dict[str, str] = {}
        occupied: dict[str, tuple[str, ...]] = {}
        for one in lb.listeners:
            problem = self.waiting.get(one.name)
            refusal = self.refused.get(one.name, "")
            if os.strerror(errno.EADDRINUSE) in refusal:
                everywhere = hostnetwork.is_held_everywhere(one.port, one.protocol)
                where = "all addresses" if everywhere else one.address
                problem = f"another process of this host holds port {one.place} of {where}"
                if not everywhere:
                    occupied[one.address] = (*occupied.get(one.address, ()), one.place)
            elif refusal:
                problem = f"Envoy refuses {one.address}: {refusal}"
            reasons = filter(None, [problems.get(one.place), unprepared.get(one.address), problem])
            if reason := "; ".join(reasons):
                problems[one.place] = reason
        return Applied(lb, problems, occupied)


class ApplyTracker:
    """Tracks how much of the last write is served."""

    def __init__(self, serving: Callable[[], Running | None], session: Callable[[], Session | None]) -> None:
        self._serving = serving
        self._session = session
        self.failure = ""
        """Why there is no Envoy, if it does not start."""
        self._may_warm = True
        """Whether clusters may wait for health checks before they serve."""

    async def wait_applied(
        self,
        wanted: Collection[LoadBalancer],
        patience: float,
        unprepared: Mapping[str, str],
    ) -> AsyncIterator[Applied]:
        """Each of `wanted` once all of its listeners serve or are refused, and the rest after `patience`.

        Sooner if the cause is known. Otherwise, Envoy may only be slow, on a busy machine.
        """
        pending, pause = list(wanted), _SHORTEST_PAUSE
        limit = asyncio.get_running_loop().time() + patience
        known_limit = limit - max(0.0, patience - _CAUSE_KNOWN)
        probes = _Probes()
        try:
            while pending:
                begun = asyncio.get_running_loop().time()
                over = begun >= limit
                session = self._session()
                changed = session.change() if session else None
                looked_at, pending = pending, []
                for some in _in_slices(looked_at):
                    view = await self._look([one for lb in some for one in lb.listeners], probes, session)
                    for lb in some:
                        known = begun >= known_limit and (
                            self.failure or any(one.address in unprepared for one in lb.listeners)
                        )
                        if over or known or not any(one.name in view.waiting for one in lb.listeners):
                            yield view.applied(lb, unprepared)
                        else:
                            pending.append(lb)
                    await asyncio.sleep(0)  # there may be thousands: others get their turn
                took = asyncio.get_running_loop().time() - begun
                if pending:
                    await asyncio.sleep(took)
                    await probes.pause(pause, changed)
                    pause = min(_LONGEST_PAUSE, pause * 2)
        finally:
            await probes.stop()

    def expect(self, *, checks: bool) -> None:
        """Something was written; `checks`: Envoy checks endpoints before it uses a new cluster."""
        self._may_warm = checks

    async def wait_processed(self, patience: float) -> None:
        """Wait until Envoy has accepted or rejected the configuration, and made its first health checks."""
        session = self._session()
        if session is not None and await session.settled(patience):
            with contextlib.suppress(TimeoutError, TransientError):
                async with asyncio.timeout(_CHECKING):
                    # Envoy announces no end of it.
                    while await self._warming(session):  # noqa: ASYNC110
                        await asyncio.sleep(_LONGEST_PAUSE)

    async def _look(self, listeners: Collection[Listener], probes: _Probes, session: Session | None) -> _View:
        """The state of these listeners: Envoy answers for its resources, and connections for sockets."""
        if session is None or self._serving() is None:
            return _View({}, dict.fromkeys((one.name for one in listeners), self.failure or _STARTING))
        delta = session.delta
        waiting = {one.name: _UNANSWERED for one in listeners if delta.lacks(one.name)}
        refused = {one.name: why for one in listeners if (why := delta.refusal(one.name)) is not None}
        taken = [one for one in listeners if one.name not in waiting and one.name not in refused]
        due = [one for one in taken if one.name in delta.unproven]
        unproven = probes.failures([one for one in due if one.protocol == "TCP"])
        delta.unproven.difference_update(one.name for one in due if one.name not in unproven)
        checked = [one.name for one in taken if one.check and one.name not in unproven]
        with contextlib.suppress(TransientError):
            warming = await self._warming(session) if checked else frozenset()
            waiting |= {name: _WARMING for name in checked if name in warming}
        return _View(refused, waiting | unproven)

    async def _warming(self, session: Session) -> frozenset[str]:
        """Clusters that wait for the first health checks of their endpoints."""
        running = self._serving()
        if not self._may_warm or running is None:
            return frozenset()
        settled, changed = session.delta.settled, session.change()
        found = await admin.warming(running)
        if not found and settled and not changed.is_set():
            self._may_warm = False
        return found


def _in_slices(all: Sequence[LoadBalancer]) -> Iterator[Sequence[LoadBalancer]]:
    return (all[first : first + _SLICE] for first in range(0, len(all), _SLICE))


class _Probes:
    """Connections to listeners, made to see whether clients can connect."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[str | None]] = {}
        self._running: set[asyncio.Task[str | None]] = set()
        self._attempts: Counter[str] = Counter()

    def failures(self, listeners: Collection[Listener]) -> dict[str, str]:
        """Why no connection was made yet, by the listener's name, where that is so. Each call tries again.

        A few at once: the listeners that were tried least come first, and there may be thousands.
        """
        found: dict[str, str] = {}
        due = []
        for one in listeners:
            task = self._tasks.get(one.name)
            if task in self._running:
                found[one.name] = _UNCONNECTED
            elif reason := task.result() if task else _UNCONNECTED:
                found[one.name] = reason
                due.append(one)
        due.sort(key=lambda one: self._attempts[one.name])
        for one in due[: _AT_ONCE - len(self._running)]:
            self._attempts[one.name] += 1
            task = self._tasks[one.name] = asyncio.create_task(self._connect(one))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return found

    async def pause(self, seconds: float, changed: asyncio.Event | None) -> None:
        """A pause that ends with a change, or with the first connection.

        Not with a refused connection, which loopback gives at once. Without attempts, only a change matters.
        """
        loop, waiting = asyncio.get_running_loop(), set[asyncio.Task[Any]](self._running)
        over = loop.time() + seconds
        changing = asyncio.create_task(changed.wait()) if changed else None
        try:
            while (left := over - loop.time()) > 0:
                several = waiting | ({changing} if changing else set())
                if not several:
                    return await asyncio.sleep(left)
                done, _ = await asyncio.wait(several, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if changing in done or any(task.result() is None for task in done):
                    return None
                waiting -= done
        finally:
            if changing:
                changing.cancel()
        return None

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _connect(self, listener: Listener) -> str | None:
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                _, writer = await asyncio.open_connection(listener.address, listener.port)
        except TimeoutError:
            return f"cannot connect to {listener.address} port {listener.port}: no answer"
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            return f"cannot connect to {listener.address} port {listener.port}: {why}"
        writer.close()
        return None
