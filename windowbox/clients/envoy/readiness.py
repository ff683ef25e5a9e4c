"""Finding out when an Envoy serves what it was told, and if not, why."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass

from windowbox.clients.envoy import admin, bootstrap, resources
from windowbox.clients.envoy.attachments import Running
from windowbox.clients.envoy.resources import Configuration
from windowbox.errors import TransientError
from windowbox.models.loadbalancers import Listener, LoadBalancer

_AT_ONCE = 64
_CONNECT_TIMEOUT = 1.0
_SHORTEST_PAUSE = 0.001
_LONGEST_PAUSE = 0.1
_FIRST_PAUSE = 0.005
_ASKING = 0.3
"""Seconds that endpoints have to answer before new ones come along. Who is dead must not hold up others."""
_UNASKED = 0.03
"""Once pauses are as long as this, Envoy is asked why there are no connections."""

_STARTING = "Envoy is being started"
_WARMING = "Envoy waits for the first health check of its endpoints"


@dataclass(frozen=True)
class Applied:
    """A load balancer of which nothing more is awaited."""

    load_balancer: LoadBalancer
    problems: Mapping[str, str]
    """Why a place does not serve: `80/TCP` → what is wrong, for people."""


@dataclass(frozen=True)
class _View:
    """What is known at one moment, by the listeners' names."""

    refused: Mapping[str, str]
    waiting: Mapping[str, str]


class ApplyTracker:
    """What was written, and how much of it is known to be served."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Listeners that Envoy has turned down, and what it said."""
        self.processed = True
        """Whether Envoy is known to have done with what was written last, be it taken or refused."""
        self.failure = ""
        """Why there is no Envoy, if it does not start."""
        self._told = resources.NOTHING
        self._unproven: set[str] = set()
        self._endpoints: dict[str, str] = {}
        self._judged = ""
        self._rejections = -1

    def expect(self, before: Configuration, after: Configuration) -> None:
        """From now on, `after` is to be served, by an Envoy that was told `before`."""
        self._told, self.processed = after, False
        old, new = before.listeners, after.listeners
        self._unproven &= new.keys()
        self._unproven |= {name for name, listener in new.items() if old.get(name) != listener}
        self._endpoints = {
            name: resources.version(after.files[bootstrap.endpoints_file(name)])
            for name, endpoints in after.endpoints.items()
            if before.endpoints.get(name) != endpoints
        }
        self.refused, self._judged = {}, ""

    def begin_anew(self, told: Configuration) -> None:
        """An Envoy has been started with this: nothing is known of it."""
        self.expect(resources.NOTHING, told)
        self._rejections = 0

    def take_over(self, told: Configuration) -> None:
        """An Envoy that was told this before is running: what it serves is not proven again."""
        self.expect(told, told)
        self._rejections, self.processed = -1, True

    async def wait_applied(
        self,
        wanted: Collection[LoadBalancer],
        patience: float,
        serving: Callable[[], Running | None],
        unprepared: Mapping[str, str],
    ) -> AsyncIterator[Applied]:
        """Each of `wanted` once all of its listeners serve or are refused, and after `patience` the rest."""
        pending, pause = list(wanted), _SHORTEST_PAUSE
        limit = asyncio.get_running_loop().time() + patience
        proofs = _Proofs()
        try:
            while pending:
                begun = asyncio.get_running_loop().time()
                over = begun >= limit
                listeners = [one for lb in pending for one in lb.listeners]
                thorough = over or pause > _UNASKED
                view = await self._look(serving(), listeners, proofs, thorough=thorough)
                took = asyncio.get_running_loop().time() - begun
                looked_at, pending = pending, []
                for lb in looked_at:
                    if over or not _awaited(lb, view):
                        yield Applied(lb, _problems(lb, view, unprepared))
                    else:
                        pending.append(lb)
                if pending:
                    # An Envoy that is slow to answer has enough to do.
                    await proofs.pause(max(pause, took))
                    pause = min(_LONGEST_PAUSE, pause * 2)
        finally:
            await proofs.stop()

    async def wait_accepted(self, patience: float, serving: Callable[[], Running | None]) -> bool:
        """Wait until the Envoy has done what it was told. False if it has not after `patience`."""
        pause = _SHORTEST_PAUSE
        limit = asyncio.get_running_loop().time() + patience
        while asyncio.get_running_loop().time() < limit:
            with contextlib.suppress(TransientError):
                late, _ = await self._late(serving())
                if not late:
                    return True
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)
        return False

    async def wait_processed(self, patience: float, serving: Callable[[], Running | None]) -> None:
        """Wait until the Envoy has read what it was told, be it taken or refused, and asked its endpoints.

        While it reads, it hears no answers: endpoints that were just asked would seem not to answer in time.
        """
        read = False
        pause = _FIRST_PAUSE
        with contextlib.suppress(TimeoutError, TransientError):
            async with asyncio.timeout(patience) as limit:
                while not self.processed and (running := serving()) is not None:
                    await asyncio.sleep(pause)
                    pause = min(_LONGEST_PAUSE, pause * 2)
                    if not read and await self._has_read(running):
                        read = True
                        limit.reschedule(asyncio.get_running_loop().time() + _ASKING)
                    self.processed = self.processed or (read and not await admin.warming(running))
        self.processed = self.processed or read

    async def _has_read(self, running: Running) -> bool:
        files = (self._told.files[name] for name in (bootstrap.CLUSTERS, bootstrap.LISTENERS))
        return await admin.versions(running) == tuple(map(resources.version, files))

    async def _look(
        self, running: Running | None, listeners: Collection[Listener], proofs: _Proofs, *, thorough: bool
    ) -> _View:
        unproven = self._prove(listeners, proofs)
        if unproven and not thorough:
            # To be asked costs an Envoy with a thousand listeners more than to be connected to.
            return _View({}, {**dict.fromkeys((one.name for one in listeners), ""), **unproven})
        try:
            late, warming = await self._late(running)
        except TransientError:
            late, warming = self.failure or _STARTING, frozenset()
        if late:
            return _View(self.refused, dict.fromkeys((one.name for one in listeners), late))
        warm = {one.name: _WARMING for one in listeners if one.name in warming}
        waiting = {**unproven, **warm}
        return _View(self.refused, {name: waiting[name] for name in waiting.keys() - self.refused.keys()})

    def _prove(self, listeners: Collection[Listener], proofs: _Proofs) -> dict[str, str]:
        lacking: dict[str, str] = {}
        for one in listeners:
            if one.protocol == "TCP" and one.name in self._unproven:
                if reason := proofs.lacking(one):
                    lacking[one.name] = reason
                else:
                    self._unproven.discard(one.name)
        return lacking

    async def _late(self, running: Running | None) -> tuple[str | None, frozenset[str]]:
        """What Envoy has not yet done with what it was told, and which clusters it is still warming."""
        standing = await admin.standing(running) if running else None
        if running is None or standing is None or not standing.live:
            return self.failure or _STARTING, frozenset()
        late = await self._not_taken(running, standing)
        warming = await admin.warming(running) if standing.warming and not late else frozenset()
        self.processed = not late and not warming
        return late, warming

    async def _not_taken(self, running: Running, standing: admin.Standing) -> str | None:
        if standing.clusters != resources.version(self._told.files[bootstrap.CLUSTERS]):
            said = " (it refuses them: its log says why)" if standing.clusters_rejected else ""
            return f"Envoy has not taken its endpoints{said}"
        wanted = resources.version(self._told.files[bootstrap.LISTENERS])
        if standing.listeners == wanted:
            self._judged, self.refused = wanted, {}
        elif standing.listeners_rejected != self._rejections:
            await self._judge(running, wanted, standing.listeners_rejected)
        if self._judged != wanted or not await self._endpoints_taken(running):
            return "Envoy has not taken it"
        return None

    async def _judge(self, running: Running, wanted: str, rejections: int) -> None:
        refused = await admin.refused(running, wanted) if rejections else None
        self._rejections = rejections
        if refused is not None:
            self._judged, self.refused = wanted, refused

    async def _endpoints_taken(self, running: Running) -> bool:
        if self._endpoints:
            taken = await admin.endpoint_versions(running)
            self._endpoints = {
                name: version
                for name, version in self._endpoints.items()
                if taken.get(admin.stat_name(name)) != version
            }
        return not self._endpoints


class _Proofs:
    """Connections of our own, made to see whether clients can make theirs."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[str | None]] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)

    def lacking(self, listener: Listener) -> str | None:
        """Why there is no connection yet; None once there was one. Asking again tries again."""
        task, reason = self._tasks.get(listener.name), "no connection was made yet"
        if task is not None and not task.done():
            return reason
        if task is not None:
            failure = task.result()
            if failure is None:
                return None
            reason = failure
        self._tasks[listener.name] = asyncio.create_task(self._connect(listener))
        return reason

    async def pause(self, seconds: float) -> None:
        """A pause that ends with the first connection."""
        running = [task for task in self._tasks.values() if not task.done()]
        if running:
            await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(seconds)

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _connect(self, listener: Listener) -> str | None:
        async with self._places:
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


def _awaited(lb: LoadBalancer, view: _View) -> bool:
    return any(one.name in view.waiting for one in lb.listeners)


def _problems(lb: LoadBalancer, view: _View, unprepared: Mapping[str, str]) -> dict[str, str]:
    problems: dict[str, str] = {}
    for one in lb.listeners:
        reasons = [problems.get(one.place), unprepared.get(one.address), _problem(one, view)]
        if said := [reason for reason in reasons if reason]:
            problems[one.place] = "; ".join(said)
    return problems


def _problem(one: Listener, view: _View) -> str | None:
    if said := view.refused.get(one.name):
        if os.strerror(errno.EADDRINUSE) in said:
            return f"another process of this host holds port {one.place} of {one.address}"
        return f"Envoy refuses {one.address}: {said}"
    return view.waiting.get(one.name)
