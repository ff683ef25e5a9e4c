"""The edge: an Envoy that is kept running, and serves the configuration written last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from windowbox.errors import Unreachable, WindowboxError
from windowbox.models.loadbalancers import LoadBalancer
from workers.loadbalancer.envoy import admin, bootstrap, jsonfiles, limits, replacing, resources
from workers.loadbalancer.envoy.admin import Health, Traffic
from workers.loadbalancer.envoy.attachments import Attachment, Order, Running
from workers.loadbalancer.envoy.readiness import Applied, ApplyTracker
from workers.loadbalancer.envoy.resources import Configuration

logger = logging.getLogger(__name__)

_SHORT_LIFE = 5.0
"""Seconds. An Envoy that ends sooner is likely to do so again."""
_LONGEST_PAUSE = 10.0
_PROCESSING = 1.0
_PROBE_OFTEN = 4.0
"""Seconds after a change in which endpoints that fail health checks are checked often."""


@dataclass(frozen=True)
class About:
    """An Envoy, for people."""

    name: str
    generation: int
    version: str
    uptime: int
    """Seconds."""
    pid: int = 0
    """0 unless it is a process of this host."""


class Edge:
    """The Envoy of one name: `write` configures it, `wait_applied` waits for that, `keep` keeps it running.

    The current configuration is read from the files of the Envoy itself, so that the next holder of the lease
    continues where this process ended.
    """

    def __init__(
        self,
        attachment: Attachment,
        name: str = "edge",
        *,
        labels: Mapping[str, str] | None = None,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.running = asyncio.Event()
        self._attachment = attachment
        self._labels = labels
        self._on_start = on_start
        self._lock = asyncio.Lock()
        self._written: Configuration | None = None
        self._written_for: tuple[Configuration, list[LoadBalancer]] | None = None
        """The configuration written last, and its load balancers."""
        self._in_doubt = False
        """Whether a write was interrupted: the files may hold less than `_written`."""
        self._known = asyncio.Event()
        self._ended_by_us = False
        self._serving: Running | None = None
        self._replaced = asyncio.Event()
        self._leaving: asyncio.Queue[Running] = asyncio.Queue()
        self._prepared: set[str] = set()
        self._unprepared: dict[str, str] = {}
        self._tracker = ApplyTracker(lambda: self._serving)
        self._generation = 0
        self._without_files = False
        self._probing_often = asyncio.Event()

    async def keep(self) -> None:
        """Keep an Envoy running, forever. One that runs already is adopted as it is."""
        async with asyncio.TaskGroup() as group:

            async def drain_old() -> None:
                while True:
                    old = await self._leaving.get()
                    group.create_task(replacing.drained(old), name=f"{self.name}: drain {old.generation}")

            group.create_task(drain_old(), name=f"{self.name}: drain")
            group.create_task(self._probe_less_often(), name=f"{self.name}: health check interval")
            failures = 0
            while True:
                begun = asyncio.get_running_loop().time()
                try:
                    await self._begin()
                    await self._until_ended()
                    logger.warning("%s: Envoy has ended; restarting it", self.name)
                except WindowboxError as error:
                    self._tracker.failure = f"Envoy does not start: {error}"
                    logger.error("%s: Envoy does not start: %s", self.name, error)
                lived = asyncio.get_running_loop().time() - begun
                failures = failures + 1 if lived < _SHORT_LIFE and not self._ended_by_us else 0
                if failures and self._written and self._written.endpoints:
                    # An Envoy that gets no inotify instance exits, and other programs of the user may take
                    # the last ones at any time.
                    logger.warning(
                        "%s: Envoy ended soon; UDP flows no longer survive changes of nodes", self.name
                    )
                    async with self._lock:
                        self._written, self._without_files = resources.in_one_file(self._written), True
                if failures > 1:  # the first restart is immediate
                    await asyncio.sleep(min(_LONGEST_PAUSE, 0.25 * 2**failures))

    async def write(self, wanted: Collection[LoadBalancer], *, retry: bool = False) -> bool:
        """Serve exactly these load balancers. True if files had to be written.

        With `retry`, Envoy tries listeners again that it has refused: their ports may be free by now.
        Waits until `keep` knows the current configuration, but not for an Envoy: the next starts with this.
        """
        await self._known.wait()
        async with self._lock:
            if self._is_written(wanted) and not retry:
                return False
            await self._prepare({address for one in wanted for address in one.listened})
            if self._in_doubt and self._serving is not None:
                self._written, self._in_doubt = await _read(self._serving), False
            before = self._written or resources.NOTHING
            # In a thread: it handles all listeners, and there may be thousands, with hundreds of nodes each.
            after, steps = await asyncio.to_thread(self._rendered, before, wanted)
            if not steps and retry and self._tracker.refused:
                # Envoy tries refused listeners again when their file is written again.
                steps = [{bootstrap.LISTENERS: after.files[bootstrap.LISTENERS]}]
            if steps:
                await self._write_steps(before, after, steps)
            self._written = after
            self._written_for = (after, list(wanted))
            return bool(steps)

    def wait_applied(
        self, wanted: Collection[LoadBalancer], patience: float = 10.0
    ) -> AsyncIterator[Applied]:
        """Each of the load balancers written last, once it is served or it is known why it is not."""
        return self._tracker.wait_applied(wanted, patience, self._unprepared)

    async def wait_accepted(self, patience: float = 3.0) -> bool:
        """Wait until Envoy has accepted the last write, removals included. False after `patience`."""
        return await self._tracker.wait_accepted(patience)

    async def wait_processed(self) -> None:
        """Wait a while until Envoy has accepted or rejected the last write.

        Envoy reads all files again for each write, even if a newer one has replaced them already: with a
        thousand listeners, it is slower than windowbox.
        """
        await self._tracker.wait_processed(_PROCESSING)

    async def end(self) -> None:
        """End its Envoys for good. `keep` must not be running."""
        for running in await self._attachment.found(self.name):
            await running.end()

    async def replace(self) -> None:
        """Replace the Envoy by a new one on the same addresses. No connection is refused or cut.

        For another version of Envoy, or another bootstrap. The old one ends when it has no connections left.
        """
        await self.running.wait()
        async with self._lock:
            old = self._serving
            written = resources.for_new_envoy(self._written or resources.NOTHING)
            new = await self._start(self._generation + 1, replacing.NO_LISTENERS)
            try:
                await replacing.prepare(new, old, written)
            except BaseException:
                with contextlib.suppress(WindowboxError):  # the first error matters more, also cancellation
                    await new.end()
                raise
            self._written = written
            self._tracker.take_over(written)
            self._serve(new)
            self._replaced.set()
            if old is not None:
                self._leaving.put_nowait(old)

    async def outdated(self) -> bool:
        """Whether a start today would use another version, bootstrap or sockets: call `replace`."""
        running = await self._attached()
        if await running.outdated() or (self._written and self._written.optionless):
            return True
        return await running.read(bootstrap.BOOTSTRAP) != bootstrap.bootstrap(self._attachment.folder)

    async def traffic(self) -> dict[str, Traffic]:
        """The traffic of each listener, by its name; also of draining ones."""
        counted = await admin.traffic(await self._attached())
        names = self._written.listeners if self._written else ()
        known = {name: counted.pop(admin.stat_name(name), Traffic()) for name in names}
        return counted | known

    async def about(self) -> About:
        """Version, generation and uptime of this Envoy."""
        running = await self._attached()
        version, uptime = await admin.about(running)
        return About(self.name, running.generation, version, uptime, getattr(running, "pid", 0))

    async def health(self) -> dict[str, tuple[Health, ...]]:
        """The health of each listener's endpoints as Envoy sees it, by the listener's name."""
        return await admin.health(await self._attached())

    async def route(self, routes: Mapping[str, str]) -> None:
        """Set the routes of the edge's traffic: prefix → next hop."""
        await (await self._attached()).route(routes)

    async def in_use(self, addresses: Collection[str]) -> set[str]:
        """The addresses that its Envoys serve, or on which they still have connections."""
        async with self._lock:
            published = {one.address for one in self._written.published} if self._written else set()
            busy = {
                name
                for running in await self._attachment.found(self.name)
                for name, counted in (await admin.traffic(running)).items()
                if counted.active
            }
        return {one for one in addresses if one in published or any(admin.is_at(one, name) for name in busy)}

    async def _attached(self) -> Running:
        await self.running.wait()
        if self._serving is None:
            raise Unreachable(f"{self.name}: Envoy has just ended")
        return self._serving

    async def _begin(self) -> None:
        """Adopt the newest Envoy that serves, or start one."""
        async with self._lock:
            found = list(await self._attachment.found(self.name))
            if len(found) > 1 and not (await _read(found[-1])).listeners:
                # A process started it to replace another one, and ended before that was complete.
                await found.pop().end()
            newest: Running | None = found.pop() if found else None
            for older in found:
                self._leaving.put_nowait(older)
            if newest:
                logger.info("%s: Envoy is running already, generation %s", self.name, newest.generation)
                written = await _read(newest)
            else:
                written = self._written or await _parsed(await self._attachment.kept(self.name))
            self._written, self._in_doubt = written, False
            self._known.set()
            if newest and self._attachment.fixed_ports and await jsonfiles.are_read_by(newest):
                # It would ignore binary files forever, and with fixed ports no other can run beside it.
                logger.info("%s: Envoy reads files of an earlier version; restarting it", self.name)
                await newest.end()
                newest = None
            if newest:
                self._tracker.take_over(written)
            else:
                self._generation = self._generation or 1
                self._written = written = resources.for_new_envoy(written)
                newest = await self._start(self._generation)
                self._tracker.start_over(written)
            self._prepared.clear()
            await self._prepare({one.address for one in written.published})
            self._serve(newest)

    def _serve(self, running: Running) -> None:
        self._serving, self._generation = running, running.generation
        self._tracker.failure = ""
        self._ended_by_us = False
        self.running.set()
        self._on_start()

    async def _until_ended(self) -> None:
        while (running := self._serving) is not None:
            self._replaced.clear()
            ended = asyncio.create_task(running.ended())
            replaced = asyncio.create_task(self._replaced.wait())
            try:
                await asyncio.wait({ended, replaced}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended.cancel()
                replaced.cancel()
            if self._serving is running:
                await ended
                self._serving = None
                self.running.clear()

    async def _start(self, generation: int, instead: Mapping[str, bytes] | None = None) -> Running:
        folder, written = self._attachment.folder, self._written or resources.NOTHING
        own = {bootstrap.BOOTSTRAP: bootstrap.bootstrap(folder)}
        order = Order(
            name=self.name,
            generation=generation,
            files={**own, **written.files, **resources.asking_often(), **(instead or {})},
            published=written.published,
            labels=self._labels,
        )
        self._probing_often.set()
        return await self._attachment.start(order)

    def _rendered(
        self, before: Configuration, wanted: Collection[LoadBalancer]
    ) -> tuple[Configuration, list[dict[str, bytes]]]:
        """The configuration for these load balancers, and the files to write."""
        listeners = [one for lb in wanted for one in lb.listeners]
        most = 0 if self._without_files else limits.affordable(before.endpoints, listeners)
        eds = limits.chosen(before.endpoints, listeners, most)
        folder, optionless = self._attachment.folder, before.optionless
        after = resources.configuration(wanted, folder=folder, eds=eds, optionless=optionless, before=before)
        return after, resources.steps(before, after)

    def _is_written(self, wanted: Collection[LoadBalancer]) -> bool:
        """Whether exactly these were written last, and all of their addresses are prepared."""
        if self._written_for is None or self._in_doubt or self._unprepared:
            return False
        written, before = self._written_for
        # Cheap, because lists compare their elements by identity first: most events change no load balancer.
        return written is self._written and before == list(wanted)

    async def _prepare(self, addresses: set[str]) -> None:
        self._prepared &= addresses  # others may be removed from the host now
        lacking = sorted(addresses - self._prepared)
        self._unprepared = dict(await self._attachment.prepare(lacking)) if lacking else {}
        self._prepared.update(set(lacking) - self._unprepared.keys())

    async def _write_steps(
        self, before: Configuration, after: Configuration, steps: Sequence[Mapping[str, bytes]]
    ) -> None:
        self._tracker.expect(before, after)
        self._written = after
        other_ports = self._attachment.fixed_ports and set(before.published) != set(after.published)
        if other_ports and (running := self._serving) is not None:
            # `keep` starts another Envoy with the new ports.
            self._serving = None
            self._ended_by_us = True
            self.running.clear()
            await running.end()
        self._in_doubt = self._serving is not None
        unchecked = {bootstrap.RUNTIME, bootstrap.LISTENERS, bootstrap.OWNERS}
        if any(step.keys() - unchecked for step in steps):
            # Endpoints may be new: their first health check may come too early, and is to be repeated soon.
            others = ({name: step[name] for name in step if name != bootstrap.RUNTIME} for step in steps)
            steps = [resources.asking_often(), *others]
            self._probing_often.set()
        for step in steps:
            if self._serving is not None and step:
                await self._serving.write(step)
        self._in_doubt = False

    async def _probe_less_often(self) -> None:
        """Restore the interval of health checks some time after a change.

        Where there are many endpoints, each is checked seldom: too late for one whose first check failed.
        """
        while True:
            await self._probing_often.wait()
            while self._probing_often.is_set():  # a further change prolongs the time
                self._probing_often.clear()
                await asyncio.sleep(_PROBE_OFTEN)
            async with self._lock:
                if self._serving is not None and self._written is not None:
                    with contextlib.suppress(WindowboxError):
                        await self._serving.write({bootstrap.RUNTIME: self._written.files[bootstrap.RUNTIME]})


async def _read(running: Running) -> Configuration:
    """The configuration in the files of an Envoy."""
    names = resources.file_names(await running.read(bootstrap.CLUSTERS))
    found = {name: await running.read(name) for name in names}
    written = {name: content for name, content in found.items() if content is not None}
    return await _parsed({**await jsonfiles.read(running), **written})


async def _parsed(files: Mapping[str, bytes]) -> Configuration:
    # In a thread: with thousands of listeners it takes seconds.
    return await asyncio.to_thread(resources.parsed, files)
