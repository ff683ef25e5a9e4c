"""Runs a mirror for each kind of each cluster: one process holds its lease, others stand by."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from bus import streams, subjects
from bus.clusters.clusters import Clusters
from bus.clusters.registry import Registry
from bus.leases import guard
from bus.leases.leases import Leases
from bus.messages import OPERATION, Operation
from bus.transport.connection import Bus
from bus.transport.finishing import to_end
from watchers.continuity import Continuity, Permit, Term, Why, Witness
from watchers.limits import Shared
from watchers.mirror import Mirror
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing, Superseded, TransientError, WindowboxError
from windowbox.kinds import RESOURCES
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, Resource
from windowbox.settings.bussettings import Retention
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

_LONGEST_PAUSE = 10.0
_YOUNG, _PAUSE_OF_YOUNG = 120.0, 0.8
"""Seconds for which a cluster counts as new, and the longest pause while it does."""
_PARTS = 16
_CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)

Pair = tuple[str, str]
"""A cluster and a kind."""


@dataclass
class Watching:
    """Mirrors all kinds of all clusters whose lease this process holds."""

    bus: Bus
    leases: Leases
    clusters: Clusters
    registry: Registry
    kinds: tuple[str, ...]
    page: int = 500
    retention: Retention = streams.DEFAULT
    share: float = 1.0
    """The part of OBJECTS that one cluster may take."""
    _states: dict[Pair, str] = field(default_factory=dict)
    _running: dict[Pair, asyncio.Task[None]] = field(default_factory=dict)
    _mirrors: dict[Pair, Mirror] = field(default_factory=dict)
    _restarts: dict[Pair, asyncio.Event] = field(default_factory=dict)
    """Set to restart a mirror."""
    _left: dict[str, set[Pair]] = field(default_factory=dict)
    """Kinds whose objects have to be purged, by lease."""
    _purging: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """By lease: one task purges all kinds of `_left` while the lease is held."""
    _terms: dict[str, Term] = field(default_factory=dict)
    _holding: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def newest() -> Witness | None:
            return max(filter(None, (mirror.newest for mirror in self._mirrors.values())), default=None)

        def restart_all() -> None:
            for restart in self._restarts.values():
                restart.set()

        self._continuity = Continuity(self.bus, newest, restart_all)
        self._shared = Shared(self.bus, self._continuity.doubt, self.retention, self.share)

    @property
    def states(self) -> dict[str, str]:
        """The state of each kind, for `windowbox status`."""
        found = {}
        for (cluster, kind), state in self._states.items():
            term = self._terms.get(_lease(cluster, kind))
            # Each process reports the kinds that this version cannot watch.
            ours = (term and term.held.is_set()) or kind not in RESOURCES
            found[f"{cluster}/{kind}"] = state if ours else "standing by"
        return found

    async def run(self) -> None:
        """Mirror until cancelled; follow clusters that join and leave."""
        changed = asyncio.Event()
        self.registry.on_change(changed.set)
        leftovers = guard.kept("watch: leftovers", self._find_leftovers)
        self._purging["leftovers"] = asyncio.create_task(leftovers, name="watch: leftovers")
        always = [
            asyncio.create_task(guard.kept(name, act), name=name)
            for name, act in (
                ("watch: continuity", self._continuity.run),
                ("watch: quota of OBJECTS", self._shared.capacity.run),
            )
        ]
        try:
            while True:
                changed.clear()
                await self._follow_members()
                tasks = [*self._running.values(), *self._purging.values(), *self._holding.values()]
                waiting = asyncio.ensure_future(changed.wait())
                try:
                    await asyncio.wait([waiting, *always, *tasks], return_when=asyncio.FIRST_COMPLETED)
                    for task in [*always, *tasks]:
                        if task.done():
                            task.result()  # its error ends this process
                finally:
                    waiting.cancel()
                self._purging = {what: task for what, task in self._purging.items() if not task.done()}
        finally:
            await _all_cancelled([*always, *self._running.values(), *self._purging.values()])
            await self._shared.aclose()
            await _all_cancelled(self._holding.values())  # last: no mirror runs when the leases are released
            for known in (self._running, self._purging, self._holding, self._terms):
                known.clear()  # for another call

    async def _follow_members(self) -> None:
        """Start and stop mirrors, so that all kinds of all members are mirrored."""
        awake = [member for member in self.registry.members.values() if not member.asleep]
        joined = {(member.id, kind) for member in awake for kind in member.kinds or self.kinds}
        unknown = {pair for pair in joined if pair[1] not in RESOURCES}
        left = {pair for pair in self._states if pair[1] not in RESOURCES} - unknown
        self._states = {pair: state for pair, state in self._states.items() if pair not in left}
        self._states |= dict.fromkeys(sorted(unknown), "broken: this version knows no such kind")
        known = {(cluster, kind) for cluster, kind in joined if kind in RESOURCES}
        wanted = {(RUNTIME, kind) for kind in self.kinds} | known
        gone = self._running.keys() - wanted
        await _all_cancelled([self._running.pop(pair) for pair in gone])
        for pair in gone:
            self._forget(pair)
            self._schedule_purge(pair)
        needed = {_lease(*pair) for pair in wanted}
        for lease in needed - self._terms.keys():
            term = self._terms[lease] = Term(self._continuity.doubt)
            holding = self.leases.while_held(lease, term.hold, term.taken)
            self._holding[lease] = asyncio.create_task(holding, name=f"watch: hold {lease}")
        for pair in wanted - self._running.keys():
            lease = _lease(*pair)
            # A listing compares what an unfinished purge has left.
            if pair in (left := self._left.get(lease, set())):
                await _cancelled(self._purging[lease])
                left.discard(pair)
                self._begin_to_purge(lease)
            mirroring = guard.kept("watch", functools.partial(self._mirror_in_terms, *pair))
            self._running[pair] = asyncio.create_task(mirroring, name=f"watch {pair}")
        for lease in self._terms.keys() - needed:
            await _cancelled(self._holding.pop(lease))
            del self._terms[lease]

    def _forget(self, pair: Pair) -> None:
        """Forget what this process knows about a kind that it watches no more: clusters come and go."""
        cluster, kind = pair
        self._states.pop(pair, None)
        self._shared.forget(cluster)
        for operation in get_args(Operation):
            with contextlib.suppress(KeyError):
                metrics.events_seen.remove(cluster, kind, operation)

    async def _find_leftovers(self) -> None:
        """Purge objects of clusters that left while no watcher ran."""
        await self.registry.complete.wait()
        for cluster in sorted(self.registry.left):
            for kind in await kinds_of(self.bus, cluster):
                if cluster in self.registry.left and (cluster, kind) not in self._running:
                    self._schedule_purge((cluster, kind))

    def _schedule_purge(self, pair: Pair) -> None:
        """Purge a kind once its lease is held: no other process can mirror it then."""
        lease = _lease(*pair)
        self._left.setdefault(lease, set()).add(pair)
        self._begin_to_purge(lease)

    def _begin_to_purge(self, lease: str) -> None:
        async def purge_by_cluster() -> None:
            left = self._left[lease]
            while left:
                cluster = min(left)[0]
                pairs = {pair for pair in left if pair[0] == cluster}
                if cluster in self.registry.left:  # a hibernated one keeps its reports, and its addresses
                    await _forget_reports(self.bus, cluster)
                # Most often another process has purged it already.
                while there := {kind for _, kind in pairs} & await kinds_of(self.bus, cluster):
                    async with asyncio.TaskGroup() as group:
                        for kind in there:
                            group.create_task(purge(self.bus, cluster, kind))
                left -= pairs

        async def purge_left() -> None:
            while self._left[lease]:
                await self.leases.once(lease, purge_by_cluster)

        if lease not in self._purging or self._purging[lease].done():
            self._purging[lease] = asyncio.create_task(purge_left(), name=f"watch: clear {lease}")

    async def _mirror_in_terms(self, cluster: str, kind: str) -> None:
        """Mirror one kind whenever its lease is held; never returns.

        A mirror outlives a lost lease for a while: if the lease is acquired again, no listing is needed.
        """
        pair, term = (cluster, kind), self._terms[_lease(cluster, kind)]
        why: Why = "start"
        while True:
            self._states[pair] = "standing by"
            await term.held.wait()
            restart = self._restarts[pair] = asyncio.Event()
            try:
                await _until(term.over, functools.partial(self._mirror, pair, term, restart, why))
                why = "lease"
            finally:
                del self._restarts[pair]

    async def _mirror(self, pair: Pair, term: Term, restart: asyncio.Event, why: Why) -> None:
        """Mirror one kind; list again after each error, and after a loss of messages. Never returns."""
        cluster, kind = pair
        member = self.registry.members.get(cluster)
        resource = RESOURCES[kind]._replace(within=member.namespace if member else "")
        failures, began = 0, time.monotonic()
        while True:
            restart.clear()
            listed, away = asyncio.Event(), False
            try:
                kube = await self.clusters.get(cluster)
                permit = Permit(term.held, self._continuity.intact)
                mirror = Mirror(
                    self.bus, kube, cluster, resource, self._shared, permit, self.page, listed, why
                )
                await _until(restart, lambda mirror=mirror: self._run(pair, mirror))  # type: ignore[misc]
                failures, why = 0, "lost"
                continue
            except Missing:
                self._states[pair] = "waiting for its CustomResourceDefinition"
                await _established(kube, cluster, resource)
            except Superseded as error:
                logger.info("%s; reading OBJECTS again", error)
                why = "superseded"
            except WindowboxError as error:
                away, why = isinstance(error, TransientError), "failed"
                logger.warning("%s %s: %s", cluster, kind, error)
                self._states[pair] = f"broken: {error}"
            except Exception as error:  # a bug, triggered by what the cluster answers
                why = "failed"
                guard.note("watch", error, f"{kind} of {cluster} are listed again")
                self._states[pair] = f"broken: {type(error).__name__}: {error}"
            failures = 0 if listed.is_set() else failures + 1
            # The API server of a cluster that has just been woken up may still be starting.
            soon = away and time.monotonic() - began < _YOUNG
            longest = _PAUSE_OF_YOUNG if soon else _LONGEST_PAUSE
            await asyncio.sleep(min(longest, 0.1 * 2 ** min(failures, 10)) * random.uniform(0.7, 1))

    async def _run(self, pair: Pair, mirror: Mirror) -> None:
        async def note_listed() -> None:
            await mirror.listed.wait()
            self._states[pair] = "watching"

        self._states[pair], self._mirrors[pair] = "listing", mirror
        listed = asyncio.create_task(note_listed())
        try:
            await mirror.run()
        finally:
            listed.cancel()
            del self._mirrors[pair]


def _lease(cluster: str, kind: str) -> str:
    """The lease of one kind of the runtime cluster, or of a part of all other clusters.

    Every process receives each change of a lease: a lease for each kind of a hundred clusters would cost more
    than all changes of their objects.
    """
    if cluster == RUNTIME:
        return f"watch.{subjects.of_cluster(cluster)}.{subjects.of_cluster(kind)}"
    return f"watch.members.{zlib.crc32(cluster.encode()) % _PARTS}"


async def _until(stop: asyncio.Event, act: Callable[[], Awaitable[None]]) -> None:
    """Run `act` until it ends, or until `stop` is set."""
    acting = asyncio.ensure_future(act())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([acting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if acting.done():
            await acting
    finally:
        stopping.cancel()
        await _cancelled(acting)


async def _cancelled(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    with contextlib.suppress(asyncio.CancelledError, WindowboxError):
        task.exception()


async def _all_cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    if cancelled:
        await asyncio.wait(cancelled)


async def _established(kube: Kube, cluster: str, resource: Resource) -> None:
    """Return as soon as the kind may exist, or after an error."""
    logger.warning("%s: no kind %s yet; waiting for its CustomResourceDefinition", cluster, resource.id)

    def parts(of: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
        found = of.get(name)
        return [part for part in found if isinstance(part, Mapping)] if isinstance(found, list) else []

    try:
        async for events in kube.watch(_CRDS, "0", only=resource.id):
            for definition in (Object(e.object) for e in events if e.type in ("ADDED", "MODIFIED")):
                conditions = parts(definition.status, "conditions")
                accepted = any(
                    (c.get("type"), c.get("status")) == ("Established", "True") for c in conditions
                )
                versions = parts(definition.spec, "versions")
                if accepted and any(v.get("name") == resource.version and v.get("served") for v in versions):
                    return
    except WindowboxError as error:
        logger.info("%s %s: %s", cluster, resource.id, error)
        await asyncio.sleep(1)


_PROPAGATION_SECONDS = 2.0
"""Seconds after which all followers of the stream have received a message."""


async def kinds_of(bus: Bus, cluster: str) -> set[str]:
    """The kinds of the cluster's objects on the bus."""
    while True:
        try:
            request = {"subjects_filter": subjects.seen_cluster(cluster)}
            info = await bus.api(f"STREAM.INFO.{streams.OBJECTS}", request)
            return {subjects.seen_of_kind(one) for one in info["state"].get("subjects") or ()}
        except WindowboxError as error:
            logger.warning("%s: its objects on the bus cannot be listed: %s", cluster, error)
            await asyncio.sleep(1)


async def _forget_reports(bus: Bus, cluster: str) -> None:
    """Forget the reports about the objects of a cluster that has left."""
    try:
        # A cancelled caller waits: the cluster may join again next.
        await to_end(bus.purge(streams.INTENTS, subjects.reports_of(cluster)))
    except WindowboxError as error:  # a sweep of the workers does it later
        logger.warning("%s: its reports are not purged: %s", cluster, error)


async def purge(bus: Bus, cluster: str, kind: str) -> None:
    """Purge a kind that no watcher mirrors any more, except objects that are announced from now on."""
    listed = subjects.listed(cluster, kind)
    while True:
        try:
            # A purge sends no message to followers, so the marker comes first.
            end = await to_end(bus.publish(listed, b"", {OPERATION: "DELETED"}))
            assert end is not None  # no message id, so never a duplicate
            # A cancelled caller waits: its next request must not overtake the purge.
            await to_end(bus.purge(streams.OBJECTS, subjects.seen_kind(cluster, kind), end))
            await asyncio.sleep(_PROPAGATION_SECONDS)
            return await bus.purge(streams.OBJECTS, listed, end + 1)
        except WindowboxError as error:
            logger.warning("%s %s: not purged: %s", cluster, kind, error)
            await asyncio.sleep(1)
