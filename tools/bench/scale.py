"""Throughput with more worker processes, and the share of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import count as numbers

import orjson

from bus import streams, subjects
from bus.transport import consumers
from sandbox.options import Options
from tools.bench.figures import Phase, Scale
from tools.bench.world import World, world

_POOL = "dnsrecord"


async def run(count: int, workers: Sequence[int], say: Callable[[str], None]) -> list[Scale]:
    """Measure `count` new records with each of these numbers of worker processes."""
    most = max(workers)
    say(f"starting a sandbox with {most} workers")
    async with world("scale", Options(workers=most)) as here:
        names, found = numbers(), list[Scale]()
        await here.measured("warm up", _next(names, count), here.client.create)
        for wanted in sorted(workers, reverse=True):
            say(f"{wanted} workers, {count} records")
            for number in range(wanted + 1, most + 1):
                await here.sandbox.stop(f"worker-{number}")
            most = wanted
            found.append(await _measured(here, wanted, _next(names, count)))
    return found[::-1]


def _next(names: Iterable[int], count: int) -> list[int]:
    return [number for _, number in zip(range(count), names, strict=False)]


async def _measured(here: World, workers: int, records: Sequence[int]) -> Scale:
    await here.quiet()
    before = await _last(here)
    phase: Phase = await here.measured("create", records, here.client.create)
    runs = await _runs_by_process(here, before)
    shares = [round(runs[process] / sum(runs.values()), 3) for process in sorted(runs)]
    return Scale(workers, phase.count, round(phase.rate, 1), round(phase.our_cpu_ms, 2), shares)


async def _last(here: World) -> int:
    """Where the journal ends."""
    return int((await here.bus.api(f"STREAM.INFO.{streams.JOURNAL}"))["state"]["last_seq"])


async def _runs_by_process(here: World, since: int) -> Counter[str]:
    """The number of runs of each worker process in the journal."""
    found = Counter[str]()
    everything = [subjects.run(_POOL, ">")]
    async for stored in consumers.snapshot(
        here.bus, streams.JOURNAL, everything, history=True, since=since + 1
    ):
        found[orjson.loads(stored.data)["process"]] += 1
    return found
