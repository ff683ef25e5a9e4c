"""Many member clusters with simulated API servers: joining, idle, full of objects, and after restarts."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import aiohttp

from bus import streams
from bus.clusters.registry import Member, Registry
from bus.leases import presence
from sandbox import processes
from sandbox.options import Options
from tests.support.apiservers import kubeconfig
from tools.bench.bus.emptyruns import CHECKOUT
from tools.bench.client import each, until
from tools.bench.report import MachineFacts, Report, is_ours, say, table
from tools.bench.usage import Meter, Usage, private, usage
from tools.bench.world import World, world
from windowbox.models.refs import (
    ENDPOINT_SLICES,
    MANAGED_RESOURCES,
    NAMESPACES,
    NODES,
    SECRETS,
    SERVICES,
    SecretKey,
)

KINDS = (ENDPOINT_SLICES, MANAGED_RESOURCES, NAMESPACES, NODES, SERVICES)
_PLACE = "many-clusters"
_BATCHES = 10
_PATIENCE = 1800.0


@dataclass(frozen=True)
class Step:
    """One operation on all clusters."""

    name: str
    seconds: float
    cpu: dict[str, float]
    """CPU seconds of each process."""
    listings: int
    """Listings that the simulated API servers answered."""
    memory_mb: dict[str, float]
    """Private memory of each process at the end of the step."""


@dataclass(frozen=True)
class ClustersFigures(MachineFacts):
    """The result of `bench scale --clusters`."""

    clusters: int
    kinds: int
    nats_servers: int
    steps: Sequence[Step]
    batches: Sequence[float]
    """Seconds until all kinds of each tenth of the clusters were watched."""
    memory_kb: dict[str, float]
    """Memory of each process, for each cluster."""
    idle_percent: dict[str, float]
    """CPU of each idle process, in percent of one core."""
    objects: int
    """In the stream OBJECTS at the end."""


async def measure(clusters: int, objects: int, idle_seconds: float, nats_servers: int) -> Report:
    """Let `clusters` clusters join, each with `objects` objects, and restart windowbox and NATS."""
    chosen = Options(nats_servers=3 if nats_servers == 3 else 1)
    # The simulator is a process of its own, so that its CPU is measured apart from the benchmark's.
    async with (
        world("clusters", chosen) as here,
        _simulator() as (url, authority, pid),
        aiohttp.ClientSession(connector=_trusting(authority)) as session,
    ):
        many = ManyClusters(here, session, url, authority, pid, clusters)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _PLACE}}
        await here.client.request("POST", NAMESPACES.path(), namespace)
        await each(range(clusters), many.create_secret)
        before, batches = many.memory(), list[float]()
        say(f"{clusters} clusters join")

        async def join() -> None:
            for batch in range(_BATCHES):
                members = range(batch * clusters // _BATCHES, (batch + 1) * clusters // _BATCHES)
                started = time.perf_counter()
                await each(members, many.join)
                await many.all_watched(members.stop)
                batches.append(round(time.perf_counter() - started, 2))

        steps = [await many.step("join", join)]
        memory = {name: (mb - before[name]) * 1000 / clusters for name, mb in many.memory().items()}
        await here.quiet()
        say(f"idle for {idle_seconds:.0f} s")
        idle = await many.step("idle", lambda: asyncio.sleep(idle_seconds))
        say(f"{clusters * objects} objects appear")
        steps.append(await many.step("fill", lambda: many.fill(objects)))
        if chosen.nats_servers == 3:
            say("the NATS servers restart, one after the other")
            steps.append(await many.step("NATS servers, in turn", many.restart_bus_in_turn))
        say("windowbox and NATS restart")
        steps.append(await many.step("restart", many.restart_all))
        figures = ClustersFigures(
            clusters=clusters,
            kinds=len(KINDS),
            nats_servers=chosen.nats_servers,
            steps=steps,
            batches=batches,
            memory_kb={name: round(kb, 1) for name, kb in memory.items()},
            idle_percent={name: round(100 * cpu / idle.seconds, 2) for name, cpu in idle.cpu.items()},
            objects=await many.objects(),
        )
    return _report(figures)


def _report(figures: ClustersFigures) -> Report:
    names = [name for name in figures.idle_percent if name.startswith(("nats", "watcher", "worker", "sim"))]
    cpu = {name: lambda one, name=name: f"{one.cpu.get(name, 0.0):.1f}" for name in names}
    shown = [
        table(
            f"{figures.clusters} clusters; CPU seconds of each process",
            figures.steps,
            {
                "step": lambda one: one.name,
                "seconds": lambda one: f"{one.seconds:.1f}",
                "listings": lambda one: str(one.listings),
                **cpu,
            },
        ),
        table(
            "Processes",
            names,
            {
                "process": str,
                "kB for each cluster": lambda name: f"{figures.memory_kb.get(name, 0.0):.0f}",
                "idle %": lambda name: f"{figures.idle_percent[name]:.2f}",
            },
        ),
        table(
            "Joining",
            enumerate(figures.batches, 1),
            {"tenth of the clusters": lambda one: str(one[0]), "seconds": lambda one: f"{one[1]:.1f}"},
        ),
    ]
    return Report(figures, shown)


@dataclass
class ManyClusters:
    """The clusters, and what the benchmark does to all of them."""

    here: World
    session: aiohttp.ClientSession
    url: str
    authority: bytes
    pid: int
    """The process of the simulated API servers."""
    count: int

    async def create_secret(self, number: int) -> None:
        """Create the Secret with the kubeconfig of a cluster."""
        data = base64.b64encode(kubeconfig(self.url, _name(number), self.authority).encode()).decode()
        secret = {"metadata": {"name": _name(number)}, "data": {"kubeconfig": data}}
        await self.here.client.request("POST", SECRETS.path(_PLACE), secret)

    async def join(self, number: int) -> None:
        place = SecretKey(namespace=_PLACE, name=_name(number))
        member = Member(id=_name(number), secret=place, kinds=tuple(kind.id for kind in KINDS))
        await Registry(self.here.bus).join(member)

    async def fill(self, objects: int) -> None:
        """Create the objects of all clusters, and wait until all of them are announced on the bus."""
        wanted = await self.objects() + self.count * (objects // len(KINDS) * len(KINDS))

        async def fill(number: int) -> None:
            for kind in KINDS:
                params = {"kind": kind.id, "count": str(objects // len(KINDS))}
                async with self.session.post(f"{self.url}/{_name(number)}/-/fill", params=params) as answer:
                    answer.raise_for_status()

        await each(range(self.count), fill)

        async def filled() -> bool:
            return await self.objects() >= wanted

        await until(filled, _PATIENCE, 0.5)

    async def restart_all(self) -> None:
        """Restart windowbox and the NATS servers."""
        sandbox, servers = self.here.sandbox, self.here.sandbox.bus_servers
        ours = [name for name in sandbox.names if is_ours(name)]
        await asyncio.gather(*(sandbox.stop(name) for name in [*ours, *servers]))
        await asyncio.gather(*(sandbox.start(name) for name in servers))
        await asyncio.gather(*(sandbox.start(name, patience=_PATIENCE) for name in ours))
        await self.all_watched(self.count)

    async def restart_bus_in_turn(self) -> None:
        """Restart the NATS servers one after the other."""
        for name in self.here.sandbox.bus_servers:
            await self.here.sandbox.stop(name)
            await self.here.sandbox.start(name)
            await self.all_watched(self.count)

    def memory(self) -> dict[str, float]:
        return {name: private(pid) for name, pid in self.here.pids().items()}

    async def objects(self) -> int:
        info = await self.here.bus.api(f"STREAM.INFO.{streams.OBJECTS}", repeat=True)
        return int(info["state"]["num_subjects"])

    async def all_watched(self, clusters: int) -> None:
        """Wait until every kind of so many clusters is watched."""

        async def watched() -> bool:
            states: dict[str, str] = {}
            for process in await presence.processes(self.here.bus):
                states |= process.get("watches", {})
            count = sum(at.startswith("many-") and state == "watching" for at, state in states.items())
            return count >= clusters * len(KINDS)

        await until(watched, _PATIENCE, 0.5)

    async def step(self, name: str, act: Callable[[], Awaitable[None]]) -> Step:
        """Measure one operation."""

        def usages() -> dict[str, Usage]:
            return {**self.here.usage(), "simulated API servers": usage(self.pid)}

        async def listings() -> int:
            async with self.session.get(f"{self.url}/-/counts") as answer:
                return int((await answer.json())["listings"])

        before, meter = await listings(), Meter(usages())
        await act()
        read = meter.read(usages())
        cpu = {process: round(seconds, 1) for process, seconds in read.cpu.items()}
        memory = {process: round(mb, 1) for process, mb in self.memory().items()}
        done = Step(name, round(read.seconds, 1), cpu, await listings() - before, memory)
        say(f"done: {done}")  # a run takes up to an hour, and may be interrupted
        return done


@contextlib.asynccontextmanager
async def _simulator() -> AsyncIterator[tuple[str, bytes, int]]:
    """The simulated API servers, in a process of their own: their URL and authority, and its id."""
    process = await asyncio.create_subprocess_exec(
        *processes.dying_with_parent([sys.executable, "-m", "tests.support.apiservers"]),
        cwd=CHECKOUT,
        stdout=PIPE,
    )
    try:
        assert process.stdout
        url, authority = (await process.stdout.readline()).decode().split()
        yield url, base64.b64decode(authority), process.pid
    finally:
        process.kill()
        await process.wait()


def _trusting(authority: bytes) -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority.decode()))


def _name(number: int) -> str:
    return f"many-{number:05}"
