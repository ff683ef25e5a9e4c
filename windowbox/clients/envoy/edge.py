"""The edge: an Envoy that is always there, and serves what it was last told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from windowbox.clients.envoy import admin, bootstrap, inotify, replacing, resources
from windowbox.clients.envoy.admin import Health, Traffic
from windowbox.clients.envoy.attachments import Attachment, HasPid, Order, Running
from windowbox.clients.envoy.readiness import Applied, ApplyTracker
from windowbox.clients.envoy.resources import Configuration
from windowbox.errors import Unreachable, WindowboxError
from windowbox.models.loadbalancers import LoadBalancer

logger = logging.getLogger(__name__)

_SHORT_LIFE = 5.0
"""Seconds. An Envoy that ends sooner is likely to do so again."""
_LONGEST_PAUSE = 10.0
_PROCESSING = 1.0
_HASTE = 4.0
"""Seconds after a change in which endpoints that do not answer are asked often."""


class About(NamedTuple):
    """An Envoy, for people."""

    generation: int
    version: str
    uptime: int
    """Seconds."""
    pid: int
    """0 where it is not a process of this host's own."""


class Edge:
    """One name's Envoy. `write` tells it what to serve, `wait_applied` when it does; `keep` keeps it running.

    What is served is known from the files of the Envoy itself, so that a successor of this process goes on
    where it ended.
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
        self._told: Configuration | None = None
        self._in_doubt = False
        self._known = asyncio.Event()
        self._ended_by_us = False
        self._serving: Running | None = None
        self._replaced = asyncio.Event()
        self._leaving: asyncio.Queue[Running] = asyncio.Queue()
        self._prepared: set[str] = set()
        self._unprepared: dict[str, str] = {}
        self._tracker = ApplyTracker()
        self._generation = 0
        self._without_files = False
        self._hasty = asyncio.Event()

    async def keep(self) -> None:
        """Have an Envoy running, for ever. One that runs already is taken over as it is."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._see_off(group), name=f"{self.name}: see off")
            group.create_task(self._calm_down(), name=f"{self.name}: calm down")
            failures = 0
            while True:
                begun = asyncio.get_running_loop().time()
                try:
                    await self._begin()
                    await self._until_ended()
                    logger.warning("%s: Envoy has ended; starting it again", self.name)
                except WindowboxError as error:
                    self._tracker.failure = f"Envoy does not start: {error}"
                    logger.error("%s: Envoy does not start: %s", self.name, error)
                lived = asyncio.get_running_loop().time() - begun
                failures = failures + 1 if lived < _SHORT_LIFE and not self._ended_by_us else 0
                if failures and self._told and self._told.endpoints:
                    self._do_without_files(self._told)
                if failures > 1:  # the first time, at once
                    await asyncio.sleep(min(_LONGEST_PAUSE, 0.25 * 2**failures))

    async def write(self, wanted: Collection[LoadBalancer]) -> bool:
        """Have exactly these served. True if that changed anything that had to be written.

        Waits until `keep` knows what is served now, but not for an Envoy: the next one starts with this.
        """
        await self._known.wait()
        async with self._lock:
            listeners = [one for lb in wanted for one in lb.listeners]
            await self._prepare({one.address for one in listeners})
            before = await self._before()
            most = 0 if self._without_files else inotify.affordable(before, listeners)
            eds = inotify.chosen(before, listeners, most)
            after = resources.configuration(wanted, folder=self._attachment.folder, eds=eds)
            steps = resources.steps(before, after) or self._again(after)
            if steps:
                await self._tell(before, after, steps)
            return bool(steps)

    def wait_applied(self, wanted: Collection[LoadBalancer], patience: float = 3.0) -> AsyncIterator[Applied]:
        """Each load balancer of those last written, as soon as it serves or it is known why it does not."""
        return self._tracker.wait_applied(wanted, patience, lambda: self._serving, self._unprepared)

    async def wait_accepted(self, patience: float = 3.0) -> bool:
        """Wait until Envoy has done what was last written, also with what was taken away."""
        return await self._tracker.wait_accepted(patience, lambda: self._serving)

    async def wait_processed(self) -> None:
        """Wait a while until Envoy has done with what was written last.

        It reads all anew for each file that is written, also if there is a newer one already: of a thousand
        listeners, that takes it longer than us.
        """
        await self._tracker.wait_processed(_PROCESSING, lambda: self._serving)

    async def end(self) -> None:
        """End its Envoy for good. Nobody may keep it running meanwhile."""
        for running in await self._attachment.found(self.name):
            await running.end()

    async def replace(self) -> None:
        """Have a new Envoy take over on the same addresses. No connection is refused, none is cut.

        For another version of Envoy, or another bootstrap. The old one ends when it has no connections left.
        """
        await self.running.wait()
        async with self._lock:
            old = self._serving
            told = self._told or resources.NOTHING
            new = await self._start(self._generation + 1, replacing.NO_LISTENERS)
            try:
                await replacing.prepare(new, old, told)
            except BaseException:
                await new.end()
                raise
            self._tracker.take_over(told)
            self._serve(new)
            self._replaced.set()
            if old is not None:
                self._leaving.put_nowait(old)

    async def outdated(self) -> bool:
        """Whether Envoy is another than we would start, or has another bootstrap: `replace` is called for."""
        running = await self._attached()
        if await running.outdated():
            return True
        return await running.read(bootstrap.BOOTSTRAP) != bootstrap.bootstrap(self._attachment.folder)

    async def traffic(self) -> dict[str, Traffic]:
        """What each listener has carried, by its name; those too that only see their connections off."""
        counted = await admin.traffic(await self._attached())
        names = self._told.listeners if self._told else ()
        known = {name: counted.pop(admin.stat_name(name), Traffic()) for name in names}
        return counted | known

    async def about(self) -> About:
        """What this Envoy is, and since when."""
        running = await self._attached()
        version, uptime = await admin.about(running)
        return About(running.generation, version, uptime, running.pid if isinstance(running, HasPid) else 0)

    async def health(self) -> dict[str, tuple[Health, ...]]:
        """What Envoy thinks of each listener's endpoints, by the listener's name."""
        return await admin.health(await self._attached())

    async def route(self, routes: Mapping[str, str]) -> None:
        """Have exactly these routes for the edge's traffic: prefix → next hop."""
        await (await self._attached()).route(routes)

    async def _attached(self) -> Running:
        await self.running.wait()
        if self._serving is None:
            raise Unreachable(f"{self.name}: Envoy has just ended")
        return self._serving

    async def _begin(self) -> None:
        async with self._lock:
            found = await self._attachment.found(self.name)
            told = await self._taken_over(found) if found else await self._last_told()
            self._told, self._in_doubt = told, False
            self._known.set()
            if found:
                newest = found[-1]
                self._tracker.take_over(told)
            else:
                self._generation = self._generation or 1
                newest = await self._start(self._generation)
                self._tracker.begin_anew(told)
            self._prepared.clear()
            await self._prepare({one.address for one in told.published})
            self._serve(newest)

    async def _taken_over(self, found: Sequence[Running]) -> Configuration:
        *older, newest = found
        if older and not (await _read(newest)).listeners:
            await newest.end()  # whoever prepared it to replace another has died meanwhile
            *older, newest = older
        for one in older:
            self._leaving.put_nowait(one)
        logger.info("%s: Envoy is running already, generation %s", self.name, newest.generation)
        return await _read(newest)

    async def _last_told(self) -> Configuration:
        return self._told or resources.parsed(await self._attachment.kept(self.name))

    def _do_without_files(self, told: Configuration) -> None:
        # An Envoy that gets no inotify instance ends at once; those that others took nobody can foresee.
        logger.warning("%s: Envoy ended soon; UDP flows no longer survive changes of nodes", self.name)
        self._told, self._without_files = resources.in_one_file(told), True

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
        folder, told = self._attachment.folder, self._told or resources.NOTHING
        own = {bootstrap.BOOTSTRAP: bootstrap.bootstrap(folder)}
        order = Order(
            name=self.name,
            generation=generation,
            files={**own, **told.files, **resources.asking_often(), **(instead or {})},
            published=told.published,
            labels=self._labels,
        )
        self._hasty.set()
        return await self._attachment.start(order)

    async def in_use(self, addresses: Collection[str]) -> set[str]:
        """Those of the addresses that its Envoys serve, or on which they still have connections."""
        async with self._lock:
            told = {one.address for one in self._told.published} if self._told else set()
            busy = {
                name
                for running in await self._attachment.found(self.name)
                for name, counted in (await admin.traffic(running)).items()
                if counted.active
            }
        return {one for one in addresses if one in told or any(admin.is_at(one, name) for name in busy)}

    async def _prepare(self, addresses: set[str]) -> None:
        self._prepared &= addresses  # others may be removed from the host now
        if lacking := sorted(addresses - self._prepared):
            failed = await self._attachment.prepare(lacking)
            self._prepared.update(set(lacking) - failed.keys())
            self._unprepared = dict(failed)

    async def _before(self) -> Configuration:
        if self._in_doubt and self._serving is not None:
            self._told, self._in_doubt = await _read(self._serving), False
        return self._told or resources.NOTHING

    async def _tell(
        self, before: Configuration, after: Configuration, steps: Sequence[Mapping[str, bytes]]
    ) -> None:
        self._tracker.expect(before, after)
        self._told = after
        if self._attachment.fixed_ports and set(before.published) != set(after.published):
            await self._end()
        self._in_doubt = self._serving is not None
        if self._is_new(steps):
            steps = [resources.asking_often(), *(_without(step, bootstrap.RUNTIME) for step in steps)]
            self._hasty.set()
        for step in steps:
            if self._serving is not None and step:
                await self._serving.write(step)
        self._in_doubt = False

    def _is_new(self, steps: Sequence[Mapping[str, bytes]]) -> bool:
        """Whether there are endpoints that have not been asked yet."""
        return any(step.keys() - {bootstrap.RUNTIME, bootstrap.LISTENERS, bootstrap.OWNERS} for step in steps)

    async def _calm_down(self) -> None:
        """Of many, Envoy asks each but seldom. Who missed the first question must not wait so long."""
        while True:
            await self._hasty.wait()
            while self._hasty.is_set():  # once more, if something has changed again meanwhile
                self._hasty.clear()
                await asyncio.sleep(_HASTE)
            async with self._lock:
                if self._serving is not None and self._told is not None:
                    with contextlib.suppress(WindowboxError):
                        await self._serving.write({bootstrap.RUNTIME: self._told.files[bootstrap.RUNTIME]})

    def _again(self, after: Configuration) -> list[dict[str, bytes]]:
        # What was refused is tried again when the file is written again, and not before.
        listeners = {bootstrap.LISTENERS: after.files[bootstrap.LISTENERS]}
        return [listeners] if self._tracker.refused else []

    async def _end(self) -> None:
        # `keep` sees the end, and starts another with the new ports.
        if self._serving is not None:
            running, self._serving = self._serving, None
            self._ended_by_us = True
            self.running.clear()
            await running.end()

    async def _see_off(self, group: asyncio.TaskGroup) -> None:
        while True:
            old = await self._leaving.get()
            group.create_task(_drained(old), name=f"{self.name}: drain {old.generation}")


async def _drained(old: Running) -> None:
    """Let an Envoy end when its last connection has, and not long after it was replaced."""
    pause = 0.1
    try:
        await replacing.retire(old)
        async with asyncio.timeout(bootstrap.DRAIN):
            # The first look is late enough to see what its threads accepted before they stopped listening.
            await asyncio.sleep(pause)
            while await admin.connections(old):
                await asyncio.sleep(pause)
                pause = min(5.0, pause * 2)
    except (TimeoutError, WindowboxError) as error:
        logger.info("%s: generation %s is ended: %s", old.name, old.generation, error or "its time is over")
    await old.end()


async def _read(running: Running) -> Configuration:
    """What an Envoy was last told."""
    clusters = await running.read(bootstrap.CLUSTERS)
    found = {name: await running.read(name) for name in resources.file_names(clusters)}
    return resources.parsed({name: content for name, content in found.items() if content is not None})


def _without(step: Mapping[str, bytes], file: str) -> dict[str, bytes]:
    return {name: content for name, content in step.items() if name != file}
