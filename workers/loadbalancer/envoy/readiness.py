"""Readiness: when Envoy serves the configuration, and if not, why."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass

from windowbox.errors import TransientError
from windowbox.models.loadbalancers import Listener, LoadBalancer
from workers.loadbalancer.envoy import admin, bootstrap, protobuf, resources
from workers.loadbalancer.envoy.attachments import Running
from workers.loadbalancer.envoy.resources import Configuration
from workers.loadbalancer.links import hostnetwork

_AT_ONCE = 64
_CONNECT_TIMEOUT = 1.0
_SHORTEST_PAUSE = 0.001
_LONGEST_PAUSE = 0.1
_FIRST_PAUSE = 0.005
_CHECKING = 0.3
"""Seconds for first health checks before more endpoints are written. Dead ones must not delay others."""
_UNASKED = 0.03
"""Once pauses are as long as this, the reason for failing connections is requested from Envoy."""
_CAUSE_KNOWN = 3.0
"""Seconds to wait for a load balancer whose problem is known."""

_STARTING = "Envoy is being started"
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

    def __init__(self, serving: Callable[[], Running | None]) -> None:
        self._serving = serving
        self.refused: dict[str, str] = {}
        """Listeners that Envoy has rejected, and its messages."""
        self.processed = True
        """Whether Envoy has accepted or rejected the last write."""
        self.failure = ""
        """Why there is no Envoy, if it does not start."""
        self._expected = resources.NOTHING
        self._unprobed: set[str] = set()
        self._endpoints: dict[str, str] = {}
        self._judged_version = ""
        self._rejections = -1
        """Envoy's counter at the last request for refusals; -1: unknown."""
        self._may_warm = True
        """Whether clusters may wait for health checks or for files before they serve."""

    def expect(self, before: Configuration, after: Configuration) -> None:
        """Expect `after` to be served, by an Envoy that serves `before`."""
        self._expected, self.processed = after, False
        old, new = before.listeners, after.listeners
        self._unprobed &= new.keys()
        self._unprobed |= {name for name, listener in new.items() if old.get(name) != listener}
        self._endpoints = {
            name: protobuf.version(after.files[bootstrap.endpoints_file(name)])
            for name, endpoints in after.endpoints.items()
            if before.endpoints.get(name) != endpoints
        }
        self.refused, self._judged_version = {}, ""
        self._may_warm = self._may_warm or any(
            before.clusters.get(name) != after.clusters[name] for name in after.warming
        )

    def start_over(self, written: Configuration) -> None:
        """Expect this of a new Envoy."""
        self.expect(resources.NOTHING, written)
        self._rejections = 0

    def take_over(self, written: Configuration) -> None:
        """Expect this of an Envoy that served it before: its listeners are not probed again."""
        self.expect(written, written)
        self._rejections, self.processed = -1, True

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
                listeners = [one for lb in pending for one in lb.listeners]
                thorough = over or pause > _UNASKED
                view = await self._look(listeners, probes, thorough=thorough)
                took = asyncio.get_running_loop().time() - begun
                looked_at, pending = pending, []
                for lb in looked_at:
                    known = begun >= known_limit and (
                        self.failure or any(one.address in unprepared for one in lb.listeners)
                    )
                    if over or known or not any(one.name in view.waiting for one in lb.listeners):
                        yield view.applied(lb, unprepared)
                    else:
                        pending.append(lb)
                if pending:
                    # An Envoy that answers slowly is busy: the pause grows with its latency.
                    await probes.pause(max(pause, took))
                    pause = min(_LONGEST_PAUSE, pause * 2)
        finally:
            await probes.stop()

    async def wait_accepted(self, patience: float) -> bool:
        """Wait until Envoy has accepted the configuration. False if it has not after `patience`."""
        pause = _SHORTEST_PAUSE
        limit = asyncio.get_running_loop().time() + patience
        while asyncio.get_running_loop().time() < limit:
            with contextlib.suppress(TransientError):
                late, _ = await self._late()
                if not late:
                    return True
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)
        return False

    async def wait_processed(self, patience: float) -> None:
        """Wait until Envoy has accepted or rejected the configuration, and made its first health checks.

        While it reads files, it handles no responses: health checks sent just before would time out.
        """
        read = False
        pause = _FIRST_PAUSE
        with contextlib.suppress(TimeoutError, TransientError):
            async with asyncio.timeout(patience) as limit:
                while not self.processed and (running := self._serving()) is not None:
                    await asyncio.sleep(pause)
                    pause = min(_LONGEST_PAUSE, pause * 2)
                    files = [self._expected.files[name] for name in (bootstrap.CLUSTERS, bootstrap.LISTENERS)]
                    if not read and await admin.versions(running) == tuple(map(protobuf.version, files)):
                        read = True
                        limit.reschedule(asyncio.get_running_loop().time() + _CHECKING)
                    self.processed = self.processed or (read and not await self._warming(running))
        self.processed = self.processed or read

    async def _look(self, listeners: Collection[Listener], probes: _Probes, *, thorough: bool) -> _View:
        due = [one for one in listeners if one.protocol == "TCP" and one.name in self._unprobed]
        unprobed = probes.failures(due)
        self._unprobed.difference_update(one.name for one in due if one.name not in unprobed)
        if unprobed and not thorough:
            # The admin interface of an Envoy with a thousand listeners costs more than a connection.
            return _View({}, {**dict.fromkeys((one.name for one in listeners), ""), **unprobed})
        try:
            late, warming = await self._late()
        except TransientError:
            late, warming = self.failure or _STARTING, frozenset()
        if late:
            return _View(self.refused, dict.fromkeys((one.name for one in listeners), late))
        warm = {one.name: _WARMING for one in listeners if one.name in warming}
        waiting = {**unprobed, **warm}
        return _View(self.refused, {name: waiting[name] for name in waiting.keys() - self.refused.keys()})

    async def _late(self) -> tuple[str | None, frozenset[str]]:
        """Why Envoy has not accepted the configuration yet, and which clusters are still warming."""
        running = self._serving()
        standing = await admin.standing(running) if running else None
        if running is None or standing is None or not standing.live:
            return self.failure or _STARTING, frozenset()
        late = await self._not_accepted(running, standing)
        warming = await self._warming(running) if standing.warming and not late else frozenset()
        self.processed = not late and not warming
        return late, warming

    async def _warming(self, running: Running) -> frozenset[str]:
        if not self._may_warm:
            return frozenset()
        asked = self._expected
        found = await admin.warming(running)
        if not found and asked is self._expected:
            self._may_warm = False
        return found

    async def _not_accepted(self, running: Running, standing: admin.Standing) -> str | None:
        if standing.clusters != protobuf.version(self._expected.files[bootstrap.CLUSTERS]):
            rejected = " (it refuses them: its log says why)" if standing.clusters_rejected else ""
            return f"Envoy has not taken its endpoints{rejected}"
        wanted = protobuf.version(self._expected.files[bootstrap.LISTENERS])
        if standing.listeners == wanted:
            self._judged_version, self.refused = wanted, {}
        elif (rejections := standing.listeners_rejected) != self._rejections:
            refused = await admin.refused(running, wanted) if rejections else None
            self._rejections = rejections
            if refused is not None:
                self._judged_version, self.refused = wanted, refused
        if self._judged_version == wanted and self._endpoints:
            taken = await admin.endpoint_versions(running)
            self._endpoints = {
                name: version
                for name, version in self._endpoints.items()
                if taken.get(admin.stat_name(name)) != version
            }
        return "Envoy has not taken it" if self._judged_version != wanted or self._endpoints else None


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

    async def pause(self, seconds: float) -> None:
        """A pause that ends with the first connection; not with a refusal, which loopback gives at once."""
        loop, waiting = asyncio.get_running_loop(), set(self._running)
        over = loop.time() + seconds
        while waiting and (left := over - loop.time()) > 0:
            done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if any(task.result() is None for task in done):
                return
        await asyncio.sleep(over - loop.time())

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
