"""`windowbox patch`: writes status back to the clusters."""

from __future__ import annotations

import contextlib

from bus import intents
from bus.leases import elections
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import run_due
from commands.roles.processes import Process
from patchers.statuspatcher import StatusPatcher
from windowbox.errors import WindowboxError


async def patch(made: Process) -> None:
    """Write status back to the clusters."""
    settings, queue = made.settings.patch, Queue(made.bus, intents.PATCH)
    handler = StatusPatcher(made.bus, await made.clusters(), settings.rate)
    ack_wait = made.settings.work.ack_wait
    made.add_pool(
        Pool(
            made.bus,
            intents.PATCH,
            handler,
            concurrency=settings.concurrency,
            ack_wait=ack_wait,
            sharing=lambda ref: ref.cluster,
        )
    )
    made.tasks["patch dues"] = lambda: run_due(made.bus, queue)
    made.add_leased("sweep.patch", lambda: _sweep(queue, made.settings.work.sweep_interval))


async def _sweep(queue: Queue, interval: float) -> None:
    async with contextlib.aclosing(elections.sweeps(queue.bus, interval, interval)) as sweeps:
        async for age in sweeps:
            with contextlib.suppress(WindowboxError):
                await queue.sweep(age)
