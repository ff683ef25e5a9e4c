"""Reconciles the heartbeat: checks the processes, then renews the Lease."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from bus import streams, subjects
from bus.clusters.clusters import Clusters
from bus.intents import PATCH
from bus.messages import EventIntent, Reason, Wish
from bus.outcomes import Done, Ignored, Outcome, RequeueAfter, Unfinished
from bus.transport.connection import ApiError, Bus, instant
from windowbox.errors import WindowboxError
from windowbox.kinds import POOLS
from windowbox.models.objects import Object
from windowbox.models.refs import HEARTBEATS, ObjectRef
from windowbox.settings.kindsettings import HeartbeatSettings
from workers.core import clock
from workers.core.lifecycle.world import World
from workers.core.reconcile import Request
from workers.core.recorder import Recorder
from workers.kinds.heartbeat import heartbeatlease

logger = logging.getLogger(__name__)

_MAX_OVERDUE = 4
"""Intervals that an item may wait in a queue before its pool counts as stuck."""
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
        if self._settings.namespace and ref != heartbeatlease.ref(self._settings.namespace):
            return Ignored("not ours")  # another namespace was configured before
        now, seen = await clock.now(recorder), await recorder.read(ref)
        if seen is not None and (left := heartbeatlease.remaining(seen, self._settings, now)):
            return Done("fresh", _due(left))
        try:
            live = await self._world.live(ref, recorder)
            problem = heartbeatlease.stale(seen, live)
            if not problem:
                limit = _MAX_OVERDUE * self._settings.interval
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
        spec = heartbeatlease.spec(self._settings, now)
        # Optimistic concurrency: a run that was delayed must not overwrite a newer version.
        version = {"resourceVersion": live.resource_version} if live is not None else {}

        async def act() -> None:
            kube = await self._clusters.get(ref.cluster)
            if live is None:
                lease = {
                    "apiVersion": f"{HEARTBEATS.group}/{HEARTBEATS.version}",
                    "kind": HEARTBEATS.kind,
                    "metadata": {"name": ref.name, "namespace": ref.namespace},
                    "spec": spec,
                }
                await kube.create(HEARTBEATS, ref.namespace, lease)
            else:
                await kube.merge(HEARTBEATS, ref.namespace, ref.name, {"metadata": version, "spec": spec})

        await recorder.call("renew", {"metadata": version, "spec": spec}, act, effect=True)


def _due(after: float, why: str = "the Lease is renewed then") -> RequeueAfter:
    return RequeueAfter(Wish(reason=Reason.DUE), after, why)


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
