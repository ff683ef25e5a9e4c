"""`windowbox patch`: writes status back to the clusters."""

from __future__ import annotations

import contextlib

from bus import intents
from bus.leases import elections
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import run_due
from commands.roles.roleprocess import Process
from patchers.directwrites import DirectWrites
from patchers.statuspatcher import StatusPatcher
from windowbox.errors import WindowboxError


async def patch(made: Process) -> None:
    """Write status back to the clusters."""
    settings, work, clusters = made.settings.patch, made.settings.work, await made.clusters()
    queue = Queue(made.bus, intents.PATCH)
    pool = Pool(
        made.bus,
        intents.PATCH,
        StatusPatcher(made.bus, clusters, settings.rate),
        concurrency=settings.concurrency,
        ack_wait=work.ack_wait,
        sharing=lambda ref: ref.cluster,
    )
    writes = DirectWrites(made.bus, clusters, concurrency=settings.concurrency, limited=bool(settings.rate))

    async def sweep() -> None:
        interval = work.sweep_interval
        async with contextlib.aclosing(elections.sweeps(made.bus, interval, interval)) as sweeps:
            async for age in sweeps:
                with contextlib.suppress(WindowboxError):
                    await queue.sweep(age)

    made.add_pool(pool)
    made.tasks["direct writes"] = writes.run
    made.tasks["patch dues"] = lambda: run_due(made.bus, queue)
    made.add_leased("sweep.patch", sweep)
