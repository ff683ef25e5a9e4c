"""The edge: an Envoy that is kept running, and serves the configuration written last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from windowbox.errors import Unreachable, WindowboxError
from windowbox.models.loadbalancers import LoadBalancer
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.envoy import admin, bootstrap, discovery, rendering, replacing, resources
from workers.loadbalancer.envoy.admin import Health, Traffic
from workers.loadbalancer.envoy.attachments import Attachment, Order, Running
from workers.loadbalancer.envoy.discovery import Discovery, Session
from workers.loadbalancer.envoy.readiness import Applied, ApplyTracker
from workers.loadbalancer.envoy.resources import Configuration
from workers.loadbalancer.tracked import Changes, LoadBalancers, MergedSets

logger = logging.getLogger(__name__)

_SHORT_LIFE = 5.0
"""Seconds. An Envoy that ends sooner is likely to do so again."""
_LONGEST_PAUSE = 10.0
_PROCESSING = 1.0
_NO_OWNERS = resources.owners_file(())
_FEW = 16
"""Listeners that are rendered at once, without a thread."""
_AT_ONCE = 256
"""Listeners that get other nodes before the event loop gets its turn."""
_OWNERS_PAUSE = 1.0
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

    An Envoy that an earlier process started is adopted: it keeps its configuration until the first `write`,
    and then gets the difference.
    """

    def __init__(
        self,
        attachment: Attachment,
        discovery: Discovery,
        name: str = "edge",
        *,
        labels: Mapping[str, str] | None = None,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.running = asyncio.Event()
        self._attachment = attachment
        self._discovery = discovery
        self._labels = labels
        self._on_start = on_start
        self._lock = asyncio.Lock()
        self._written: Configuration | None = None
        """The configuration written last; None before the first `write`."""
        self._changes: Changes[ObjectRef] = Changes()
        """The load balancers that the configuration lacks, or has in another version."""
        self._unhealthy = frozenset[str]()
        """The addresses of unhealthy nodes in the configuration."""
        self.addresses: MergedSets[ObjectRef, str] = MergedSets()
        """The addresses of all listeners."""
        self._disowned = asyncio.Event()
        """The file of owners is outdated."""
        self._wanted = asyncio.Event()
        """The configuration is known."""
        self._ended_by_us = False
        self._serving: Running | None = None
        self._replaced = asyncio.Event()
        self._leaving: asyncio.Queue[Running] = asyncio.Queue()
        self._prepared: set[str] = set()
        self._unprepared: dict[str, str] = {}
        self._tracker = ApplyTracker(lambda: self._serving, self._session)
        self._generation = 0
        self._probing_often = asyncio.Event()

    async def keep(self) -> None:
        """Keep an Envoy running, forever. One that runs already is adopted as it is."""
        async with asyncio.TaskGroup() as group:

            async def drain_old() -> None:
                while True:
                    old = await self._leaving.get()
                    group.create_task(self._drain(old), name=f"{self.name}: drain {old.generation}")

            group.create_task(drain_old(), name=f"{self.name}: drain")
            group.create_task(self._probe_less_often(), name=f"{self.name}: health check interval")
            group.create_task(self._keep_owners(), name=f"{self.name}: owners")
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
                if failures > 1:  # the first restart is immediate
                    await asyncio.sleep(min(_LONGEST_PAUSE, 0.25 * 2**failures))

    async def write(
        self, wanted: LoadBalancers, unhealthy: frozenset[str] = frozenset(), *, retry: bool = False
    ) -> None:
        """Serve exactly these load balancers, without the nodes at these addresses where Envoy checks none.

        With `retry`, Envoy tries listeners again that it has refused: their ports may be free by now.
        Does not wait for an Envoy: the next one starts with this.
        """
        async with self._lock:
            self._changes.follow(wanted)
            with self._changes.taken() as changed:
                if changed or self._unprepared or self._written is None or unhealthy != self._unhealthy:
                    await self._write({ref: wanted.get(ref) for ref in changed}, unhealthy)
            if retry and (session := self._session()) and session.delta.retry():
                session.notify()

    def wait_applied(
        self, wanted: Collection[LoadBalancer], patience: float = 10.0
    ) -> AsyncIterator[Applied]:
        """Each of the load balancers written last, once it is served or it is known why it is not."""
        return self._tracker.wait_applied(wanted, patience, self._unprepared)

    async def wait_accepted(self, patience: float = 3.0) -> bool:
        """Wait until Envoy has accepted the last write, removals included. False after `patience`."""
        session = self._session()
        return session is not None and await session.settled(patience)

    async def wait_processed(self) -> None:
        """Wait a while until Envoy has accepted or rejected the last write, and checked new endpoints."""
        await self._tracker.wait_processed(_PROCESSING)

    async def end(self) -> None:
        """End its Envoys for good. `keep` must not be running."""
        for running in await self._attachment.found(self.name):
            await running.end()
            self._discovery.forget(self.name, running.generation)

    async def replace(self) -> None:
        """Replace the Envoy by a new one on the same addresses. No connection is refused or cut.

        For another version of Envoy, or another bootstrap. The old one ends when it has no connections left.
        """
        await self.running.wait()
        await self._wanted.wait()
        async with self._lock:
            old = self._serving
            new = await self._start(self._generation + 1)
            session = self._discovery.session(self.name, new.generation)
            try:
                await replacing.prepare(new, session, old)
                await self._write_owners(new)
            except BaseException:
                with contextlib.suppress(WindowboxError):  # the first error matters more, also cancellation
                    await new.end()
                raise
            self._serve(new)
            self._replaced.set()
            if old is not None:
                self._leaving.put_nowait(old)

    async def outdated(self) -> bool:
        """Whether a start today would use another version or bootstrap: call `replace`."""
        running = await self._attached()
        if await running.outdated():
            return True
        return await running.read(bootstrap.BOOTSTRAP) != self._bootstrap(running.generation)

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
            found = {one for one in addresses if one in self.addresses}
            for running in await self._attachment.found(self.name):
                found |= await admin.busy(running, addresses)
        return found

    async def _attached(self) -> Running:
        await self.running.wait()
        if self._serving is None:
            raise Unreachable(f"{self.name}: Envoy has just ended")
        return self._serving

    def _session(self) -> Session | None:
        """That of the Envoy that serves, or is being started."""
        return self._discovery.session(self.name, self._generation) if self._generation else None

    async def _begin(self) -> None:
        """Adopt the newest Envoy that serves, or start one."""
        await self._discovery.begin()
        async with self._lock:
            found = list(await self._attachment.found(self.name))
            if len(found) > 1 and await found[-1].read(bootstrap.OWNERS) is None:
                # A process started it to replace another one, and ended before that was complete.
                await found.pop().end()
            newest: Running | None = found.pop() if found else None
            for older in found:
                self._leaving.put_nowait(older)
            if newest and self._attachment.fixed_ports and not await self._is_current(newest):
                # With fixed ports no other can run beside it.
                logger.info("%s: Envoy has a bootstrap of an earlier version; restarting it", self.name)
                await newest.end()
                newest = None
        if newest is None and self._attachment.fixed_ports:
            await self._wanted.wait()  # its ports have to be known
        async with self._lock:
            if newest:
                logger.info("%s: Envoy is running already, generation %s", self.name, newest.generation)
                self._generation = newest.generation
                self._want(self._discovery.session(self.name, newest.generation))
            else:
                # An earlier process may have had owners that are not known again yet.
                owners = await self._attachment.owners(self.name)
                newest = await self._start(self._generation or 1, {bootstrap.OWNERS: owners or _NO_OWNERS})
                await self._write_owners(newest)
            self._prepared.clear()
            await self._prepare(self.addresses)
            self._serve(newest)

    async def _is_current(self, running: Running) -> bool:
        return await running.read(bootstrap.BOOTSTRAP) == self._bootstrap(running.generation)

    async def _drain(self, old: Running) -> None:
        await replacing.drained(old, self._discovery.session(self.name, old.generation))
        self._discovery.forget(self.name, old.generation)

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

    async def _start(self, generation: int, files: Mapping[str, bytes] | None = None) -> Running:
        """Start an Envoy. Without further files, another one still serves: listeners are held."""
        self._discovery.forget(self.name, generation)
        session = self._discovery.session(self.name, generation)
        session.delta.held = files is None
        self._want(session)
        order = Order(
            name=self.name,
            generation=generation,
            files={bootstrap.BOOTSTRAP: self._bootstrap(generation), **(files or {})},
            published=self._written.published if self._written else (),
            labels=self._labels,
        )
        return await self._attachment.start(order)

    def _bootstrap(self, generation: int) -> bytes:
        node = discovery.node_id(self.name, generation)
        return bootstrap.bootstrap(node, self._attachment.folder, self._attachment.discovery)

    def _want(self, session: Session) -> None:
        """Give the configuration to an Envoy. Without one, it keeps what it has."""
        if self._written:
            self._tracker.expect(checks=self._written.checks)
            session.want(self._written.resources(often=self._written.checks))
            if self._written.checks:
                self._probing_often.set()

    async def _write(
        self, wanted: Mapping[ObjectRef, LoadBalancer | None], unhealthy: frozenset[str]
    ) -> None:
        """Bring the configuration up to date with these load balancers; None: they are served no longer."""
        before = self._written or Configuration()
        changed, judged = dict(wanted), unhealthy ^ self._unhealthy
        moved = before.behind(judged) if judged else {}
        for ref, one in wanted.items():
            sick, kept = moved.pop(ref, None), before.rendered.get(ref)
            if one and kept and kept.balancer.listeners is one.listeners:
                del changed[ref]
                if sick or kept.balancer is not one:
                    moved[ref] = one
        if moved:
            await self._retarget(before, moved.values(), unhealthy)
        if changed or self._unprepared or self._written is None:
            await self._replace(before, changed, unhealthy)
        self._unhealthy = unhealthy

    async def _retarget(
        self, written: Configuration, moved: Iterable[LoadBalancer], unhealthy: frozenset[str]
    ) -> None:
        """Replace the endpoints of these load balancers. Envoy gets the first ones at once."""
        lists = rendering.EndpointLists(unhealthy)
        for some in _in_slices(moved):
            written.retarget(resources.retargeted(some, written, lists))
            if session := self._session():
                self._want(session)
            await asyncio.sleep(0)

    async def _replace(
        self,
        before: Configuration,
        changed: Mapping[ObjectRef, LoadBalancer | None],
        unhealthy: frozenset[str],
    ) -> None:
        """Replace the resources of these load balancers."""
        touched = set[str]()
        for ref, one in changed.items():
            touched |= self.addresses.put(ref, one.listened if one else ())
        self._prepared -= {address for address in touched if address not in self.addresses}
        await self._prepare(touched)
        anywhere = self._attachment.fixed_ports
        if sum(len(one.listeners) for one in changed.values() if one) > _FEW:
            # There may be thousands of listeners, with hundreds of nodes each.
            rendered = await asyncio.to_thread(
                resources.rendered, changed, before, unhealthy, anywhere=anywhere
            )
        else:
            rendered = resources.rendered(changed, before, unhealthy, anywhere=anywhere)
        await self._configure(before, rendered)

    async def _prepare(self, addresses: Iterable[str]) -> None:
        """Prepare those of these addresses that are not, and any for which that has failed before."""
        several = {*addresses, *self._unprepared} - self._prepared
        lacking = sorted(address for address in several if address in self.addresses)
        self._unprepared = dict(await self._attachment.prepare(lacking)) if lacking else {}
        self._prepared.update(set(lacking) - self._unprepared.keys())

    async def _configure(
        self, written: Configuration, changed: Mapping[ObjectRef, resources.Rendered | None]
    ) -> None:
        fixed = self._attachment.fixed_ports
        ports = set(written.published) if fixed and self._written else None
        if written.take(changed) or self._written is None:
            self._disowned.set()
        self._written = written
        self._wanted.set()
        if session := self._session():
            self._want(session)
        if fixed and ports not in (None, set(written.published)) and self._serving:
            # `keep` starts another Envoy with the new ports.
            running, self._serving = self._serving, None
            self._ended_by_us = True
            self.running.clear()
            await running.end()
            self._discovery.forget(self.name, running.generation)

    async def _write_owners(self, running: Running) -> None:
        """Write the owners to the folder of the Envoy. Without a configuration, the file stays as it is."""
        if self._written:
            self._disowned.clear()
            await running.write({bootstrap.OWNERS: resources.owners_file(self._written.owners)})

    async def _keep_owners(self) -> None:
        """Keep the file of owners up to date. It has all of them, so no change waits for it."""
        while True:
            await self._disowned.wait()
            await self.running.wait()
            try:
                if self._serving:
                    await self._write_owners(self._serving)
            except WindowboxError as error:
                self._disowned.set()
                logger.warning("%s: its file of owners is not written: %s", self.name, error)
            await asyncio.sleep(_OWNERS_PAUSE)

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
                if self._written and (session := self._session()):
                    session.want(self._written.resources())


def _in_slices(balancers: Iterable[LoadBalancer]) -> Iterator[Sequence[LoadBalancer]]:
    """Slices with few listeners; some load balancers have one, others hundreds."""
    some, size = list[LoadBalancer](), 0
    for one in balancers:
        some.append(one)
        size += len(one.listeners)
        if size >= _AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some
