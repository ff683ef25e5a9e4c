"""The pool `heartbeat`: one Lease, renewed in an interval."""

from __future__ import annotations

from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import Router
from windowbox.kinds import Served
from workers.core.reconcile import ReconcileHandler
from workers.core.serving import Common, Parts
from workers.kinds.heartbeat import heartbeatlease
from workers.kinds.heartbeat.heartbeatlease import HeartbeatMapping, request_first_run
from workers.kinds.heartbeat.heartbeatreconciler import HeartbeatReconciler


def enabled(common: Common) -> bool:
    """Whether the Lease is to be renewed: the settings name its namespace."""
    return bool(common.kinds.heartbeat.namespace)


async def assembled(common: Common, row: Served) -> Parts:
    settings = common.kinds.heartbeat
    assert settings.namespace
    bus, lease, queue = common.bus, heartbeatlease.ref(settings.namespace), Queue(common.bus, row.pool)
    runs = HeartbeatReconciler(bus, common.clusters, common.world, settings)
    handler = ReconcileHandler(bus, common.clusters, runs)
    return Parts(
        pool=Pool(bus, row.pool, handler, concurrency=1, ack_wait=common.work.ack_wait),
        router=Router(bus, queue, HeartbeatMapping(lease)),
        tasks={"first run": lambda: request_first_run(bus, queue, lease, settings.interval)},
    )
