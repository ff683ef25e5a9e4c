"""Both programs in turn: DNSRecords, and Infrastructures at once, alone, and alone beside fresh Shoots."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count as numbers
from itertools import islice
from pathlib import Path

from rich.console import RenderableType

from sandbox.options import TOGETHER, Options
from tools.bench import shoots
from tools.bench.client import NAMESPACE, Observer, each
from tools.bench.report import MachineFacts, Phase, Report, say, table
from tools.bench.shoots import Shoots
from tools.bench.versus import goprogram
from tools.bench.world import World, world
from windowbox.models.refs import CLUSTERS, INFRASTRUCTURES

OURS = "windowbox"
_RUNNER = "runner-1"
_WARM_UP = 50
_CALM = 3.0
"""Seconds from the last of many fresh Shoots until one Infrastructure is created."""
_NONE = (0.0, 0.0, 0.0)
_SECOND = 1.1
"""Statuses have times in seconds: reports of a phase have to be older than the requests of the next."""
RECORDS = ("records created", "records updated", "records deleted")
ALONE = ("alone on a quiet API server", "alone, 3 s after many Shoots")
INFRASTRUCTURE = ("created", "reconciled again", "deleted")


@dataclass(frozen=True)
class Turn:
    """One program's figures in one round."""

    round: int
    program: str
    phases: Sequence[Phase]


@dataclass(frozen=True)
class Side:
    """One program's medians over all rounds; CPU in milliseconds for each object."""

    rate: float
    """Objects each second."""
    latency_ms: tuple[float, float, float]
    """Until one object is done: the least, the median and the most of the rounds' medians."""
    program_ms: float
    nats_ms: float
    named_ms: float
    apiserver_ms: float
    etcd_ms: float
    writes: float
    reads: float


@dataclass(frozen=True)
class Row:
    """One operation, of both programs."""

    what: str
    go: Side
    ours: Side

    @property
    def faster(self) -> float:
        return self.ours.rate / self.go.rate

    @property
    def cost(self) -> float:
        """CPU of windowbox and NATS as a multiple of the Go program's."""
        return (self.ours.program_ms + self.ours.nats_ms) / self.go.program_ms


@dataclass(frozen=True)
class VersusFigures(MachineFacts):
    """The result of `bench versus`."""

    rows: Sequence[Row]
    turns: Sequence[Turn] = field(repr=False)


async def measure(program: Path | None, objects: int, shoots_each: int, rounds: int) -> Report:
    """Let both programs serve the same objects in turn, in each round in the other order."""
    path = await asyncio.to_thread(goprogram.checked, program)
    # Gardener's own set-up accepts unsigned updates, at port 53.
    options = Options.model_validate({**TOGETHER, "dns_key": False, "ports": {"named": 53}})
    turns, names = list[Turn](), numbers()
    async with (
        world("versus", options) as here,
        Observer.watching(here.client, INFRASTRUCTURES, "") as observer,
    ):
        await here.client.request("POST", CLUSTERS.path(), shoots.cluster(NAMESPACE))
        await here.sandbox.stop(_RUNNER)
        for number in range(1, rounds + 1):
            sides = (goprogram.NAME, OURS) if number % 2 else (OURS, goprogram.NAME)
            for side in sides:
                say(f"round {number} of {rounds}: {side}")
                async with _serving(side, path, here):
                    phases = await _records(here, objects)
                    if shoots_each:
                        phases += await _infrastructures(here, observer, shoots_each, names)
                turns.append(Turn(number, side, phases))
    figures = VersusFigures(rows=rows(turns), turns=turns)
    return Report(figures, _parts(figures))


def rows(turns: Sequence[Turn]) -> list[Row]:
    """The medians of each operation, of both programs."""
    return [
        Row(one.name, _side(one.name, goprogram.NAME, turns), _side(one.name, OURS, turns))
        for one in turns[0].phases
    ]


@contextlib.asynccontextmanager
async def _serving(side: str, program: Path, here: World) -> AsyncIterator[None]:
    """One of the programs, ready and idle."""
    if side == OURS:
        await here.sandbox.start(_RUNNER)
        await here.quiet()
        yield
        await here.sandbox.stop(_RUNNER)
        return
    async with goprogram.running(program, here) as pid:
        here.beside[side] = pid
        await here.quiet()
        yield
        del here.beside[side]


async def _records(here: World, count: int) -> list[Phase]:
    client, warm = here.client, range(count, count + _WARM_UP)
    await here.measured("warm up", warm, client.request_record)
    await here.measured("warm up", warm, client.delete, gone=True)
    everything = range(count)
    return [
        await here.measured(RECORDS[0], everything, client.request_record),
        await here.measured(RECORDS[1], everything, client.change),
        await here.measured(RECORDS[2], everything, client.delete, gone=True),
    ]


async def _infrastructures(here: World, observer: Observer, count: int, names: numbers[int]) -> list[Phase]:
    made = Shoots.within(here)
    singles = max(1, count // 10)
    measured = partial(here.measured, named=shoots.named, observer=observer)

    async def fresh(wanted: int) -> list[int]:
        """Namespaces, Clusters and Secrets of Shoots that nobody has seen before."""
        chosen = list(islice(names, wanted))
        await each(chosen, made.prepare)
        return chosen

    alone, many = await fresh(singles), await fresh(count)
    await here.quiet()
    remove = partial(made.delete, INFRASTRUCTURES)
    phases = [
        await measured(ALONE[0], alone, made.infrastructure, one_by_one=True),
        await measured(f"{count} at once {INFRASTRUCTURE[0]}", many, made.infrastructure),
    ]
    await asyncio.sleep(_SECOND)
    again = partial(made.reconcile, INFRASTRUCTURES)
    phases.append(await measured(f"{count} at once {INFRASTRUCTURE[1]}", many, again))
    phases.append(await measured(f"{count} at once {INFRASTRUCTURE[2]}", many, remove, gone=True))
    await here.quiet()
    one = (await fresh(count))[:1]
    await asyncio.sleep(_CALM)
    phases.append(await measured(ALONE[1], one, made.infrastructure, one_by_one=True))
    await measured("clean up", [*alone, *one], remove, gone=True)
    return phases


def _side(what: str, program: str, turns: Sequence[Turn]) -> Side:
    """The medians of one operation."""
    phases = [one for turn in turns if turn.program == program for one in turn.phases if one.name == what]

    def median(figure: Callable[[Phase], float]) -> float:
        return round(statistics.median(map(figure, phases)), 3)

    def cpu(name: str) -> float:
        return median(lambda one: one.cpu_ms.get(name, 0.0))

    def reads(one: Phase) -> float:
        return sum(n for request, n in one.requests.items() if request.split()[0] == "get")

    latencies = sorted(one.latency.p50 for one in phases if one.latency)
    return Side(
        rate=median(lambda one: one.rate),
        latency_ms=(latencies[0], statistics.median(latencies), latencies[-1]) if latencies else _NONE,
        program_ms=cpu(_RUNNER if program == OURS else program),
        nats_ms=cpu("nats-server") if program == OURS else 0.0,
        named_ms=cpu("named"),
        apiserver_ms=cpu("kube-apiserver"),
        etcd_ms=cpu("etcd"),
        writes=median(lambda one: one.writes),
        reads=median(reads),
    )


def _parts(figures: VersusFigures) -> list[RenderableType]:
    """The figures as tables: many at once; one alone, for which the CPU is less than the kernel counts."""

    def both(figure: Callable[[Side], float], digits: int = 1) -> Callable[[Row], str]:
        return lambda row: f"{figure(row.go):.{digits}f} → {figure(row.ours):.{digits}f}"

    def ours(row: Row) -> str:
        side = row.ours
        return f"{side.program_ms + side.nats_ms:.1f} = {side.program_ms:.1f} + {side.nats_ms:.1f}"

    def latency(side: Side) -> str:
        least, median, most = side.latency_ms
        return f"{median:.0f} ({least:.0f}–{most:.0f})"

    requests = {"writes": both(lambda side: side.writes, 2), "reads": both(lambda side: side.reads, 2)}
    rounds = max(turn.round for turn in figures.turns)
    title = f"Go → windowbox; medians of {rounds} rounds; CPU in ms for each object"
    parts: list[RenderableType] = [
        table(
            title,
            [row for row in figures.rows if row.what not in ALONE],
            {
                "": lambda row: row.what,
                "objects/s": both(lambda side: side.rate, 0),
                "ratio": lambda row: f"{row.faster:.2f}",
                "CPU: Go": lambda row: f"{row.go.program_ms:.1f}",
                "windowbox + NATS": ours,
                "cost": lambda row: f"{row.cost:.2f}",
                "named": both(lambda side: side.named_ms),
                "API server + etcd": both(lambda side: side.apiserver_ms + side.etcd_ms),
                **requests,
            },
        )
    ]
    if alone := [row for row in figures.rows if row.what in ALONE]:
        waits = {
            "": lambda row: row.what,
            "ms until done, p50 (of the rounds)": lambda row: f"{latency(row.go)} → {latency(row.ours)}",
        }
        parts.append(table("One Infrastructure", alone, {**waits, **requests}))
    return parts
