"""Restart of all processes of windowbox, with unchanged objects."""

from __future__ import annotations

import asyncio
import time

from tools.bench import audit
from tools.bench.figures import Restart, is_ours
from tools.bench.world import World


async def measured(here: World, objects: int) -> Restart:
    """Restart all processes of windowbox, and measure what they do with unchanged objects."""
    await here.drained()
    await here.quiet()
    names = [name for name in here.sandbox.names if is_ours(name)]
    await asyncio.gather(*(here.sandbox.stop(name) for name in names))
    here.audit.requests()
    started = time.perf_counter()
    await asyncio.gather(*(here.sandbox.start(name) for name in names))
    ready = time.perf_counter()
    quiet = await here.quiet()
    requests = here.audit.requests()
    return Restart(
        objects=objects,
        ready=round(ready - started, 2),
        quiet=round(quiet - started, 2),
        requests=dict(sorted(requests.items())),
        writes=audit.writes(requests),
        dns_updates=await here.dns_updates(),
    )
