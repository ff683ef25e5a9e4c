"""Many clusters: joining, idle, full of objects, and after restarts. Their API servers are simulated."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import aiohttp
from rich.table import Table

from bus import streams
from bus.clusters.registry import Member, Registry
from bus.leases import presence
from sandbox import processes
from sandbox.options import Options
from tools.bench import tables
from tools.bench.apiservers import kubeconfig
from tools.bench.concurrently import each
from tools.bench.figures import is_ours
from tools.bench.usage import private, usage
from tools.bench.world import World, world
from windowbox.errors import WindowboxError
from windowbox.models.refs import (
    ENDPOINT_SLICES,
    MANAGED_RESOURCES,
    NAMESPACES,
    NODES,
    SECRETS,
    SERVICES,
    SecretKey,
)

Say = Callable[[str], None]

KINDS = (ENDPOINT_SLICES, MANAGED_RESOURCES, NAMESPACES, NODES, SERVICES)
_PLACE = "many-clusters"
_BATCHES = 10
_PATIENCE = 1800.0


@dataclass(frozen=True)
class Step:
    """What one thing took that was done to all clusters."""

    name: str
    seconds: float
    cpu: dict[str, float]
    """Seconds of each process."""
    listings: int
    """Asked of the simulated API servers."""
    memory_mb: dict[str, float]
    """Of each process, private to it, when the step was done."""


@dataclass(frozen=True)
class ClustersFigures:
    """What `bench scale --clusters` found."""

    clusters: int
    kinds: int
    nats_servers: int
    steps: list[Step]
    batches: list[float]
    """Seconds until each tenth of the clusters, joining together, was watched."""
    memory_kb: dict[str, float]
    """Of each process, for each cluster."""
    idle_percent: dict[str, float]
    """CPU of each process while nothing happens, in percent of one core."""
    objects: int
    """In OBJECTS at the end."""


@dataclass
class _Run:
    here: World
    session: aiohttp.ClientSession
    url: str
    api: int
    """The process of the simulated API servers."""
    say: Say

    async def counts(self) -> dict[str, int]:
        async with self.session.get(f"{self.url}/-/counts") as answer:
            return dict(await answer.json())

    def cpu(self) -> dict[str, float]:
        found = {name: used.cpu for name, used in self.here.usage().items()}
        return {**found, "simulated API servers": usage(self.api).cpu}

    def memory(self) -> dict[str, float]:
        children = self.here.sandbox.state.children.items()
        return {name: private(child.pid) for name, child in children if child.pid}

    async def step(self, name: str, act: Callable[[], Awaitable[None]]) -> Step:
        listings, before, started = (await self.counts())["listings"], self.cpu(), time.perf_counter()
        await act()
        seconds, after = time.perf_counter() - started, self.cpu()
        # A process that was restarted has begun to count anew.
        used = {one: cpu - before.get(one, 0.0) for one, cpu in after.items()}
        used = {one: cpu if cpu >= 0 else after[one] for one, cpu in used.items()}
        asked = (await self.counts())["listings"] - listings
        rounded = {one: round(cpu, 1) for one, cpu in used.items()}
        memory = {one: round(mb, 1) for one, mb in self.memory().items()}
        done = Step(name, round(seconds, 1), rounded, asked, memory)
        self.say(f"done: {done}")  # a run of an hour may be ended before its end
        return done

    async def all_watched(self, clusters: int) -> None:
        """Wait until every kind of so many clusters is watched, by the bus and by the API servers."""

        async def watched() -> int:
            states: dict[str, str] = {}
            for process in await presence.processes(self.here.bus):
                states |= process.get("watches", {})
            return sum(at.startswith("many-") and state == "watching" for at, state in states.items())

        async with asyncio.timeout(_PATIENCE):
            while await _or_zero(watched) < clusters * len(KINDS):  # noqa: ASYNC110
                await asyncio.sleep(0.5)  # other processes send no events

    async def objects(self) -> int:
        info = await self.here.bus.api(f"STREAM.INFO.{streams.OBJECTS}", repeat=True)
        return int(info["state"]["num_subjects"])


async def run(
    clusters: int, objects: int, idle_seconds: float, nats_servers: int, say: Say
) -> ClustersFigures:
    """Let so many clusters join, each with so many objects, and restart what there is."""
    chosen = Options(nats_servers=3 if nats_servers == 3 else 1)
    say(f"starting a sandbox with {chosen.nats_servers} NATS servers, and simulated API servers")
    async with (
        world("clusters", chosen) as here,
        _simulated() as (url, pid),
        aiohttp.ClientSession() as session,
    ):
        bench = _Run(here, session, url, pid, say)
        await _prepare(bench, clusters)
        before, batches, steps = bench.memory(), list[float](), list[Step]()
        say(f"{clusters} clusters join")

        async def join() -> None:
            for batch in range(_BATCHES):
                members = range(batch * clusters // _BATCHES, (batch + 1) * clusters // _BATCHES)
                started = time.perf_counter()
                await each(members, lambda number: Registry(here.bus).join(_member(number)))
                await bench.all_watched(members.stop)
                batches.append(round(time.perf_counter() - started, 2))

        steps.append(await bench.step("join", join))
        memory = {name: (mb - before[name]) * 1000 / clusters for name, mb in bench.memory().items()}
        say(f"idle for {idle_seconds:.0f} s")
        await here.quiet()
        idle = await bench.step("idle", lambda: asyncio.sleep(idle_seconds))
        say(f"{clusters * objects} objects appear")
        steps.append(await bench.step("fill", lambda: _fill(bench, clusters, objects)))
        if chosen.nats_servers == 3:
            say("the NATS servers restart, one after the other")
            steps.append(await bench.step("NATS servers, in turn", lambda: _restart_in_turn(bench, clusters)))
        say("windowbox and NATS restart")
        steps.append(await bench.step("restart", lambda: _restart(bench, clusters)))
        return ClustersFigures(
            clusters=clusters,
            kinds=len(KINDS),
            nats_servers=chosen.nats_servers,
            steps=steps,
            batches=batches,
            memory_kb={name: round(kb, 1) for name, kb in memory.items()},
            idle_percent={name: round(100 * cpu / idle.seconds, 2) for name, cpu in idle.cpu.items()},
            objects=await bench.objects(),
        )


def shown(figures: ClustersFigures) -> list[Table]:
    """The figures as tables."""
    names = [name for name in figures.idle_percent if name.startswith(("nats", "watcher", "worker", "sim"))]
    steps = tables.table_of(f"{figures.clusters} clusters", "step", "seconds", "listings", *names)
    for step in figures.steps:
        cpu = (f"{step.cpu.get(name, 0.0):.1f}" for name in names)
        steps.add_row(step.name, f"{step.seconds:.1f}", str(step.listings), *cpu)
    each = tables.table_of("Processes", "process", "kB for each cluster", "idle %")
    for name in names:
        each.add_row(name, f"{figures.memory_kb.get(name, 0.0):.0f}", f"{figures.idle_percent[name]:.2f}")
    batches = tables.table_of("Joining", "tenth of the clusters", "seconds")
    for number, seconds in enumerate(figures.batches, 1):
        batches.add_row(str(number), f"{seconds:.1f}")
    return [steps, each, batches]


async def _prepare(bench: _Run, clusters: int) -> None:
    """A Secret with its kubeconfig for each cluster."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _PLACE}}
    await bench.here.client.request("POST", NAMESPACES.path(), namespace)

    async def create(number: int) -> None:
        data = base64.b64encode(kubeconfig(bench.url, _name(number)).encode()).decode()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": _name(number)},
            "data": {"kubeconfig": data},
        }
        await bench.here.client.request("POST", SECRETS.path(_PLACE), secret)

    await each(range(clusters), create)


async def _fill(bench: _Run, clusters: int, objects: int) -> None:
    before = await bench.objects()

    async def fill(number: int) -> None:
        for kind in KINDS:
            wanted = {"kind": kind.id, "count": str(objects // len(KINDS))}
            async with bench.session.post(f"{bench.url}/{_name(number)}/-/fill", params=wanted) as answer:
                answer.raise_for_status()

    await each(range(clusters), fill)
    async with asyncio.timeout(_PATIENCE):
        wanted = before + clusters * (objects // len(KINDS) * len(KINDS))
        while await _or_zero(bench.objects) < wanted:  # noqa: ASYNC110
            await asyncio.sleep(1)  # until all have been announced


async def _restart_in_turn(bench: _Run, clusters: int) -> None:
    for name in bench.here.sandbox.bus_servers:
        await bench.here.sandbox.stop(name)
        await bench.here.sandbox.start(name)
        await bench.all_watched(clusters)


async def _restart(bench: _Run, clusters: int) -> None:
    sandbox = bench.here.sandbox
    ours = [name for name in sandbox.names if is_ours(name)]
    await asyncio.gather(*(sandbox.stop(name) for name in [*ours, *sandbox.bus_servers]))
    await asyncio.gather(*(sandbox.start(name) for name in sandbox.bus_servers))
    await asyncio.gather(*(sandbox.start(name, patience=_PATIENCE) for name in ours))
    await bench.all_watched(clusters)


@contextlib.asynccontextmanager
async def _simulated() -> AsyncIterator[tuple[str, int]]:
    """The simulated API servers, in a process of their own: their URL and its id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tools.bench.apiservers", stdout=PIPE, preexec_fn=processes.dying_with_parent()
    )  # fmt: skip
    try:
        assert process.stdout
        yield (await process.stdout.readline()).decode().strip(), process.pid
    finally:
        process.kill()
        await process.wait()


async def _or_zero(count: Callable[[], Awaitable[int]]) -> int:
    """While the bus is away nothing is known."""
    try:
        return await count()
    except WindowboxError:
        return 0


def _name(number: int) -> str:
    return f"many-{number:05}"


def _member(number: int) -> Member:
    place = SecretKey(namespace=_PLACE, name=_name(number))
    return Member(id=_name(number), secret=place, kinds=tuple(kind.id for kind in KINDS))
