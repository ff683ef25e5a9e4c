"""DNSRecords from the API to the name server and back: latency, throughput and cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sandbox.options import Options
from tools.bench import restarts
from tools.bench.figures import Figures
from tools.bench.world import World, world

_WARM_UP = 50
_SINGLES = 20


async def run(
    count: int, idle_seconds: float, options: Options, say: Callable[[str], None], *, first: bool = False
) -> Figures:
    """Measure with `count` records, and with the processes of these options; with `first`, before others."""
    say("starting a sandbox")
    async with world("dnsrecords", options, first=first) as here:
        client = here.client
        singles = range(count, count + _SINGLES)
        warm_up = range(count + _SINGLES, count + _SINGLES + _WARM_UP)
        await here.measured("warm up", warm_up, client.create)
        say(f"{_SINGLES} single records")
        isolated = await here.measured("isolated", singles, client.create, one_by_one=True)
        say(f"{count} records: create, change")
        created = await here.measured("create", range(count), client.create)
        changed = await here.measured("update", range(count), client.change)
        say("restart")
        restart = await restarts.measured(here, count + _SINGLES + _WARM_UP)
        say(f"idle for {idle_seconds:.0f} s")
        idle = await _idle(here, idle_seconds)
        peak = {name: round(used.peak, 1) for name, used in here.usage().items()}
        say("delete")
        deleted = await here.measured("delete", range(count), client.delete, gone=True)
    return Figures([isolated, created, changed, deleted], restart, idle, peak)


async def _idle(here: World, seconds: float) -> dict[str, float]:
    """CPU of each idle process, in percent of one core."""
    before = here.usage()
    await asyncio.sleep(seconds)
    after = here.usage()
    return {name: round(100 * (after[name].cpu - before[name].cpu) / seconds, 2) for name in after}
