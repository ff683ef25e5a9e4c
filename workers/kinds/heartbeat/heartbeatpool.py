"""The pool `heartbeat`: checks the processes, then renews the Lease that Gardener watches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import UTC, datetime
from typing import Any

from bus import streams, subjects
from bus.clusters.clusters import Clusters
from bus.intents import PATCH
from bus.messages import Announcement, EventIntent, Reason, Wish
from bus.outcomes import Done, Ignored, Outcome, RequeueAfter, Unfinished
from bus.transport.connection import ApiError, Bus, instant
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import PreviousVersion, Router
from windowbox.clients.kubernetes import bulkhead
from windowbox.errors import WindowboxError
from windowbox.kinds import POOLS, Served
from windowbox.models import extensions
from windowbox.models.objects import Object
from windowbox.models.refs import HEARTBEATS, RUNTIME, ObjectRef
from windowbox.settings.kindsettings import HeartbeatSettings
from workers.core import clock
from workers.core.lifecycle.world import World
from workers.core.reconcile import ReconcileHandler, Request
from workers.core.recorder import Recorder
from workers.core.serving import Common, Parts

logger = logging.getLogger(__name__)

_AGAIN = 1.0
_MISSED_INTERVALS = 5
"""Intervals after which the wish is repeated, in case the bus has lost the scheduled one."""


def lease_ref(namespace: str) -> ObjectRef:
    """The Lease that Gardener checks."""
    return ObjectRef(RUNTIME, HEARTBEATS.id, namespace, HEARTBEATS.named)


def spec(settings: HeartbeatSettings, now: datetime) -> dict[str, Any]:
    """The spec that a renewal writes."""
    renewed = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return _lasting(settings) | {"renewTime": renewed}


def remaining(lease: Object, settings: HeartbeatSettings, now: datetime) -> float:
    """Seconds until the Lease has to be renewed; 0 if that is due."""
    renewed = extensions.instant(lease.spec.get("renewTime"))
    lasting = _lasting(settings).items()
    if renewed is None or any(lease.spec.get(name) != value for name, value in lasting):
        return 0.0
    left = settings.interval - (now - renewed).total_seconds()
    if left > 2 * settings.interval:
        # The clock has jumped. Unchanged, the Lease would look fresh until then, even without windowbox.
        return 0.0
    # The clock of the host that renewed it may be a little ahead.
    return min(max(0.0, left), settings.interval)


def stale(seen: Object | None, live: Object | None) -> str:
    """Why watchers count as unhealthy: they have not announced the latest version. Empty if they have."""
    if live is None or (seen is not None and seen.resource_version == live.resource_version):
        return ""
    shown = f"version {seen.resource_version}" if seen is not None else "no Lease at all"
    return f"watchers show {shown}, the API has version {live.resource_version}"


def changed_by_others(old: Object, new: Object) -> bool:
    """Whether more than the renew time has changed."""
    return bool(_without_renew_time(old) != _without_renew_time(new))


def _without_renew_time(lease: Object) -> Any:
    return lease.uid, {name: value for name, value in lease.spec.items() if name != "renewTime"}


def _lasting(settings: HeartbeatSettings) -> dict[str, Any]:
    return {"holderIdentity": settings.holder, "leaseDurationSeconds": settings.interval}


class HeartbeatMapping:
    """Triggers: changes of the Lease by others, and listings after a gap."""

    kinds: tuple[str, ...] = (HEARTBEATS.id,)
    owned: tuple[str, ...] = ()

    def __init__(self, lease: ObjectRef) -> None:
        self._lease = lease

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        key = subjects.without("object", change.stored.subject)
        if subjects.ref(key) != self._lease or change.operation == "ADDED":
            return []
        if change.operation != "MODIFIED" or change.omitted:
            return [key]
        old = await before.object()
        return [key] if old is None or changed_by_others(old, change.object()) else []

    def unfinished(self, object: Object) -> bool:
        return object.ref(self._lease.cluster, self._lease.kind) == self._lease


async def request_first_run(bus: Bus, queue: Queue, lease: ObjectRef, interval: float) -> None:
    """Request a run at the start, and whenever the bus may have lost the scheduled one. Runs for ever."""
    back = asyncio.Event()
    with bus.on_reconnect(back.set):
        while True:
            back.clear()
            try:
                await queue.remind(subjects.key(lease), Wish(reason=Reason.START))
            except WindowboxError as error:
                logger.info("heartbeat: %s; again in %s s", error, _AGAIN)
                await asyncio.sleep(_AGAIN)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MISSED_INTERVALS * interval):
                    await back.wait()


def enabled(common: Common) -> bool:
    """Whether the Lease is to be renewed: the settings name its namespace."""
    return bool(common.kinds.heartbeat.namespace)


async def assembled(common: Common, row: Served) -> Parts:
    settings = common.kinds.heartbeat
    assert settings.namespace
    bus, lease, queue = common.bus, lease_ref(settings.namespace), Queue(common.bus, row.pool)
    runs = HeartbeatReconciler(bus, common.clusters, common.world, settings)
    handler = ReconcileHandler(bus, common.clusters, runs)
    return Parts(
        pool=Pool(bus, row.pool, handler, concurrency=1, ack_wait=common.work.ack_wait),
        router=Router(bus, queue, HeartbeatMapping(lease)),
        tasks={"first run": lambda: request_first_run(bus, queue, lease, settings.interval)},
    )


_MAX_OVERDUE = 4
"""Intervals that an item may wait in a queue before its pool counts as stuck; it is given more than these
where runs may last longer."""
_MARGIN = 60.0
"""Seconds for what runs do beside their time at a provider cluster."""
_RETRY_SECONDS = 5.0
"""Seconds between checks while something is wrong, unless the interval is shorter."""


class HeartbeatReconciler:
    """Renews the Lease. A run itself shows that bus and worker are healthy; it checks the rest.

    The Lease is watched, so a watcher that has announced the last renewal is alive, and a live watcher takes
    over from those that are not.
    """

    def __init__(self, bus: Bus, clusters: Clusters, world: World, settings: HeartbeatSettings) -> None:
        self._bus = bus
        self._clusters = clusters
        self._world = world
        self._settings = settings

    async def reconcile(self, request: Request) -> Outcome:
        """Renew the Lease if that is due and all checks pass, whatever the wish was made for."""
        ref, recorder = request.ref, request.recorder
        if self._settings.namespace and ref != lease_ref(self._settings.namespace):
            return Ignored("not ours")  # another namespace was configured before
        now, seen = await clock.now(recorder), await recorder.read(ref)
        if seen is not None and (left := remaining(seen, self._settings, now)):
            return Done("fresh", _due(left))
        try:
            live = await self._world.live(ref, recorder)
            problem = stale(seen, live)
            if not problem:
                limit = patience(self._settings)
                problem = str(await recorder.call("signs", None, bus_problem, self._bus, limit))
            if not problem:
                await self._renew(ref, live, now, recorder)
                return Done("renewed", _due(self._settings.interval))
        except WindowboxError as error:
            problem = str(error)
        logger.warning("the heartbeat is not renewed: %s", problem)
        return Unfinished(problem, _due(min(self._settings.interval, _RETRY_SECONDS), problem))

    async def quarantine_patch(
        self, request: Request, found: Object, event: EventIntent
    ) -> dict[str, Any] | None:
        logger.error("%s: not renewed: renewing it has ended this process before", request.ref)
        return None

    async def _renew(self, ref: ObjectRef, live: Object | None, now: datetime, recorder: Recorder) -> None:
        wanted = spec(self._settings, now)
        # Optimistic concurrency: a run that was delayed must not overwrite a newer version.
        version = {"resourceVersion": live.resource_version} if live is not None else {}

        async def act() -> None:
            kube = await self._clusters.get(ref.cluster)
            if live is None:
                lease = {
                    "apiVersion": f"{HEARTBEATS.group}/{HEARTBEATS.version}",
                    "kind": HEARTBEATS.kind,
                    "metadata": {"name": ref.name, "namespace": ref.namespace},
                    "spec": wanted,
                }
                await kube.create(HEARTBEATS, ref.namespace, lease)
            else:
                await kube.merge(HEARTBEATS, ref.namespace, ref.name, {"metadata": version, "spec": wanted})

        await recorder.call("renew", {"metadata": version, "spec": wanted}, act, effect=True)


def _due(after: float, why: str = "the Lease is renewed then") -> RequeueAfter:
    return RequeueAfter(Wish(reason=Reason.DUE), after, why)


def patience(settings: HeartbeatSettings) -> float:
    """Seconds that a wish may wait before its pool counts as stuck.

    A tenant's slow server may use up the time of a run. A wish that comes just after the run has begun waits
    for it, and then for its own. No tenant may make all of windowbox look stuck by that.
    """
    return max(_MAX_OVERDUE * settings.interval, 2 * bulkhead.BUDGET + _MARGIN)


async def bus_problem(bus: Bus, limit: float) -> str:
    """Why patchers or workers are unhealthy; empty if they are healthy."""
    try:
        # An idle patcher has a pull request open at the bus.
        info = await bus.api(f"CONSUMER.INFO.{streams.WORK}.pool-{PATCH}")
    except ApiError as error:
        return f"no patcher has come yet ({error})"
    if int(info["num_ack_pending"]) == 0 and int(info["num_waiting"]) == 0:
        return "no patcher asks for work"
    now = await bus.now()
    for pool in (PATCH, *POOLS):
        oldest = await bus.first(streams.TRIGGERS, subjects.wish(pool, ">"))
        if oldest is not None and now - instant(oldest.time) > limit:
            return f"something in the queue of {pool} has waited for {now - instant(oldest.time):.0f} s"
    return ""
