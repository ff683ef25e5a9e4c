"""DNSRecords from the API to the name server and back: latency, throughput and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count as numbers
from itertools import islice

import orjson
from rich.console import RenderableType
from rich.text import Text

from bus import streams, subjects
from bus.transport import consumers
from commands import busstatus
from sandbox.options import Options
from tools.bench.profiling.samples import by_step, sampled, steps_table
from tools.bench.report import (
    MachineFacts,
    Phase,
    Report,
    Restart,
    is_ours,
    percents,
    phases_table,
    processes_table,
    requests_table,
    say,
    table,
)
from tools.bench.world import World, world

_WARM_UP = 50
_SINGLES = 20
_POOL = "dnsrecord"
_NATS = "nats-server"
_IDLE = 10.0
"""Seconds of idleness that are measured before each number of workers."""


@dataclass(frozen=True)
class RecordFigures(MachineFacts):
    """The result of `bench dnsrecords`."""

    phases: Sequence[Phase]
    restart: Restart
    idle_percent: Mapping[str, float]
    """CPU of each idle process, in percent of one core."""
    peak_mib: Mapping[str, float]
    """The most memory that each process had."""


@dataclass(frozen=True)
class WorkersFigures:
    """The result of `bench scale` for one number of worker processes."""

    workers: int
    count: int
    rate: float
    """Records each second."""
    our_cpu_ms: float
    """CPU of windowbox's own processes together, in milliseconds for each record."""
    nats_cpu_ms: float
    messages: float
    """Messages to and from the NATS server, for each record."""
    idle_percent: float
    """CPU of windowbox's own processes and NATS while idle, in percent of one core."""
    shares: Sequence[float]
    """The share of each worker process in the runs."""


async def records(count: int, idle_seconds: float, options: Options, *, first: bool) -> Report:
    """Measure `count` records in a sandbox with these options."""
    async with world("dnsrecords", options, first=first) as here:
        client, everything = here.client, count + _SINGLES + _WARM_UP
        await here.measured("warm up", range(count + _SINGLES, everything), client.create)
        say(f"{_SINGLES} single records")
        singles = range(count, count + _SINGLES)
        isolated = await here.measured("isolated", singles, client.create, one_by_one=True)
        say(f"{count} records: create, change")
        created = await here.measured("create", range(count), client.create)
        changed = await here.measured("update", range(count), client.change)
        restart = await here.restarted(everything)
        idle = (await here.idle(idle_seconds)).percent
        peak = {name: round(used.peak, 1) for name, used in here.usage().items()}
        say("delete")
        deleted = await here.measured("delete", range(count), client.delete, gone=True)
    phases = [isolated, created, changed, deleted]
    requests = ", ".join(f"{n} {what}" for what, n in restart.requests.items()) or "none"
    figures = RecordFigures(phases, restart, idle, peak)
    parts: list[RenderableType] = [
        phases_table("DNSRecords", phases),
        requests_table(phases),
        processes_table(phases, figures.idle_percent, figures.peak_mib),
        Text(f"{restart}, {restart.dns_updates} DNS updates\n  requests: {requests}"),
    ]
    return Report(figures, parts)


async def profiled(count: int, options: Options) -> Report:
    """Measure `count` records, and the CPU of each step of windowbox meanwhile."""
    with sampled() as samples:
        async with world("profile", options) as here:
            found, client = list[tuple[Phase, Mapping[str, float]]](), here.client
            await here.measured("warm up", range(count, count + _WARM_UP), client.create)
            for name, act in (
                ("create", client.create),
                ("update", client.change),
                ("delete", client.delete),
            ):
                say(f"{count} records: {name}")
                before = samples.counts()
                phase = await here.measured(name, range(count), act, gone=name == "delete")
                found.append((phase, by_step(samples.counts() - before, phase)))
    figures = [{"phase": phase, "steps": steps} for phase, steps in found]
    return Report(figures, [phases_table("DNSRecords", [phase for phase, _ in found]), steps_table(found)])


async def with_more_workers(count: int, workers: Sequence[int]) -> Report:
    """Measure `count` new records with each of these numbers of worker processes."""
    most, found = max(workers), list[WorkersFigures]()
    async with world("scale", Options(workers=most)) as here:
        names = numbers()
        await here.measured("warm up", islice(names, count), here.client.create)
        for wanted in sorted(workers, reverse=True):
            say(f"{wanted} workers, {count} records")
            for number in range(wanted + 1, most + 1):
                await here.sandbox.stop(f"worker-{number}")
            most = wanted
            await here.quiet()
            found.insert(0, await _with_workers(here, wanted, list(islice(names, count))))
    shown = table(
        "More workers",
        found,
        {
            "workers": lambda one: str(one.workers),
            "records": lambda one: str(one.count),
            "records/s": lambda one: f"{one.rate:.0f}",
            "our CPU ms/record": lambda one: f"{one.our_cpu_ms:.2f}",
            "NATS": lambda one: f"{one.nats_cpu_ms:.2f}",
            "its messages/record": lambda one: f"{one.messages:.0f}",
            "idle CPU %, with NATS": lambda one: f"{one.idle_percent:.2f}",
            "share of each worker": lambda one: percents(one.shares),
        },
    )
    return Report(found, [shown])


async def _with_workers(here: World, workers: int, numbers: Sequence[int]) -> WorkersFigures:
    """Measure idleness, then these new records."""
    idle = (await here.idle(_IDLE)).percent
    journal = await here.bus.api(f"STREAM.INFO.{streams.JOURNAL}")
    before, last = await _messages(here), int(journal["state"]["last_seq"])
    phase = await here.measured("create", numbers, here.client.create)
    messages, runs = await _messages(here) - before, Counter[str]()
    async for stored in consumers.snapshot(
        here.bus, streams.JOURNAL, [subjects.run(_POOL, ">")], history=True, since=last + 1
    ):
        runs[orjson.loads(stored.data)["process"]] += 1
    return WorkersFigures(
        workers=workers,
        count=phase.count,
        rate=round(phase.rate, 1),
        our_cpu_ms=round(phase.our_cpu_ms, 2),
        nats_cpu_ms=round(phase.cpu_ms[_NATS], 2),
        messages=round(messages / phase.count, 1),
        idle_percent=round(sum(cpu for name, cpu in idle.items() if is_ours(name) or name == _NATS), 2),
        shares=[round(runs[process] / runs.total(), 3) for process in sorted(runs)],
    )


async def _messages(here: World) -> int:
    """How many messages the NATS server has got and sent."""
    figures = await busstatus.server(here.sandbox.environment()["NATS_MONITOR_URL"])
    assert figures
    return int(figures["in_msgs"]) + int(figures["out_msgs"])
