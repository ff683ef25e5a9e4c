"""Services of type LoadBalancer: created, changed and deleted, and what clients notice of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rich.text import Text

from bus import streams, subjects
from bus.transport.buckets import Bucket
from sandbox.options import Options
from tools.bench import audit
from tools.bench.client import NAMESPACE, Observer, background, until
from tools.bench.loadbalancers import nodesetup
from tools.bench.loadbalancers.nodesetup import NodeSetup
from tools.bench.loadbalancers.traffic import PATIENCE, Caller, ingress, reached, refused
from tools.bench.report import MachineFacts, Measured, Report, listed, measured_parts, repeated, say
from tools.bench.usage import Meter, Usage, usage
from tools.bench.world import World, world
from windowbox.errors import Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import NODES, SERVICES
from workers.loadbalancer.edge import edgestatus
from workers.loadbalancer.edge.trafficnodes import EXCLUDED
from workers.loadbalancer.envoy.process import Process, Processes

NODE_COUNT = 4
_RATE = 200
_SETTLED = 0.2
"""Seconds after a step in which it has its last effects."""


@dataclass(frozen=True)
class BalancerFigures(MachineFacts):
    """The result of `bench loadbalancer`."""

    nodes: str
    measured: Sequence[Measured]
    writes: float
    """API writes for each load balancer from its creation to its end, without Events."""
    requests: Mapping[str, float]
    """Requests of windowbox to the API, for each load balancer."""
    untried: str
    """Why nodes are not real; empty if they are, or if simulated ones were requested."""
    elsewhere_percent: float
    """How much of the machine other processes used meanwhile."""


async def measure(times: int, *, simulated: bool) -> Report:
    """Measure each operation `times` times."""
    chosen = nodesetup.options(NODE_COUNT, simulated=simulated)
    untried = "" if chosen.nodes else nodesetup.missing()
    async with opened(chosen) as bench:
        say(f"{bench.ground.kind}: preparing them")
        await bench.ground.prepare()
        say(f"cold edge, {times} times")
        cold = await bench.cold(times)
        meter = Meter(await bench.usage())
        await bench.created("standing")
        bench.here.audit.requests()
        say(f"warm edge, {times} Services one after the other")
        warm, gone = await bench.lives(times)
        await asyncio.sleep(1)  # the last lines of the audit log
        requests = bench.here.audit.requests()
        say("nodes and ports that change under a client")
        changes = await bench.changes(times)
        say("one of the nodes swallows every packet")
        lost = await bench.with_a_node_lost(times)
        found = BalancerFigures(
            nodes=bench.ground.kind,
            untried=untried,
            measured=[warm, lost, cold, *changes, gone],
            writes=round(audit.writes(audit.without_events(requests)) / times, 2),
            requests={what: round(n / times, 2) for what, n in sorted(requests.items())},
            elsewhere_percent=meter.read(await bench.usage()).elsewhere_percent,
        )
    why = f" (real ones need {untried})" if untried else ""
    parts = measured_parts(f"Load balancers before {found.nodes}{why}", found.measured)
    summary = Text(
        f"API writes for each load balancer, from its creation to its end: {found.writes:.2f} "
        f"(aim: 3); {listed(found.requests)}\n"
        f"used by other processes meanwhile: {found.elsewhere_percent:.0f} % of the machine"
    )
    return Report(found, [*parts, summary])


@contextlib.asynccontextmanager
async def opened(chosen: Options) -> AsyncIterator[Balancers]:
    """Services in a fresh sandbox with the chosen nodes."""
    async with world("loadbalancer", chosen) as here, contextlib.AsyncExitStack() as stack:
        watching = Observer.watching(
            here.client, SERVICES, NAMESPACE, lambda one: bool(ingress(one)), seconds_each=0.2
        )
        services = await stack.enter_async_context(watching)
        made = Balancers(here, nodesetup.ground(here.sandbox, here.client, chosen), services)
        bucket = Bucket(here.bus, streams.ADDRESSES)
        bucket.on_change(made.note_address)
        await stack.enter_async_context(background(bucket.run(), "addresses"))
        await bucket.complete.wait()
        yield made


@dataclass
class Balancers:
    """Creates and changes Services of type LoadBalancer, and measures what clients see."""

    here: World
    ground: NodeSetup
    services: Observer
    """Of Services whose status shows an address."""
    _early: int = 0
    _freeing: dict[str, asyncio.Future[float]] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def created(self, name: str = "") -> tuple[float, str, str]:
        """Create a Service: seconds until a client is served at its address, its name, and the address."""
        name = name or f"web-{next(self._numbers)}"
        await self.ground.create_endpoints(name)
        begun = time.perf_counter()
        manifest = self.ground.service(name, [80])
        await self.here.client.request("POST", SERVICES.path(NAMESPACE), manifest)
        await self.services.all_of([name])
        address = ingress(self.services.objects[name])
        served, failed = await reached(address, 80)
        self._early += bool(failed)
        return served - begun, name, address

    async def deleted(self, name: str, address: str) -> float:
        """Delete a Service: seconds until its address is free."""
        # Wait from before the request on: the address may be free before the answer is read.
        freed = self._freeing[address] = asyncio.get_running_loop().create_future()
        begun = time.perf_counter()
        await self.here.client.request("DELETE", SERVICES.path(NAMESPACE, name))
        try:
            async with asyncio.timeout(PATIENCE):
                return float(await freed) - begun
        except TimeoutError:
            raise Unreachable(f"{address} is not free after {PATIENCE:.0f} s") from None

    def note_address(self, key: str, value: bytes | None) -> None:
        """Take a change of the address store."""
        freed = self._freeing.pop(subjects.address(key) or "", None) if value is None else None
        if freed and not freed.done():
            freed.set_result(time.perf_counter())

    async def life(self) -> tuple[float, float]:
        """Create a Service, and delete it: the seconds of both."""
        born, name, address = await self.created()
        await asyncio.sleep(_SETTLED)
        died = await self.deleted(name, address)
        await asyncio.sleep(_SETTLED)
        return born, died

    def births(self, what: str, found: tuple[list[tuple[float, float]], list[str]], aim: float) -> Measured:
        """The creations among these lives; counts statuses since the last call that came too early."""
        lives, failed = found
        early, self._early = self._early, 0
        return Measured.of(what, [born for born, _ in lives], aim, failed, early=early)

    async def lives(self, times: int) -> tuple[Measured, Measured]:
        found = await repeated(times, self.life)
        died = Measured.of("delete → free", [died for _, died in found[0]], 500, found[1])
        return self.births("create", found, 300), died

    async def with_a_node_lost(self, times: int) -> Measured:
        node = self.ground.names[-1]
        await self.ground.drop_packets(node)
        try:
            return self.births("create, dead node", await repeated(times, self.life), 1500)
        finally:
            await self.ground.repair(node)

    async def cold(self, times: int) -> Measured:
        """The first Service, each time: no Envoy runs, because none was needed before."""

        async def first_life() -> tuple[float, float]:
            await self.here.sandbox.stop("worker-1")
            # Envoys outlive the worker that started them.
            for envoy in await self.envoys():
                await envoy.end()
            shutil.rmtree(self.here.sandbox.folder / "edge", ignore_errors=True)
            await self.here.sandbox.start("worker-1")
            await until(partial(edgestatus.query, self.here.bus), PATIENCE)
            await self.here.quiet(calm=0.5)
            return await self.life()

        return self.births("create, cold edge", await repeated(times, first_life), 1000)

    async def changes(self, times: int) -> list[Measured]:
        """Add and remove nodes and ports while a client connects."""
        _, name, address = await self.created("changing")
        node, caller = self.ground.names[1], Caller(address, 80, self.ground.forwarding_node)

        async def took(act: Awaitable[None], seen: Callable[[float], Awaitable[float]]) -> float:
            begun = time.perf_counter()
            await act
            return await seen(begun) - begun

        async def added(since: float) -> float:
            return (await reached(address, 81))[0]

        nodes = {
            "node out": lambda: took(self._exclude(node, "true"), partial(caller.left, node)),
            "node in": lambda: took(self._exclude(node, None), partial(caller.entered, node)),
        }
        ports = {
            "port added": lambda: took(self._set_ports(name, [80, 81]), added),
            "port removed": lambda: took(self._set_ports(name, [80]), lambda since: refused(address, 81)),
        }
        async with caller.calling(_RATE):
            await asyncio.sleep(1)
            return [
                *await self._in_turn(times, caller, nodes), *await self._in_turn(times, caller, ports)
            ]  # fmt: skip

    async def _in_turn(
        self, times: int, caller: Caller, changes: Mapping[str, Callable[[], Awaitable[float]]]
    ) -> list[Measured]:
        """Repeat these changes in turn, and count the caller's connections during each of them."""
        took: dict[str, list[float]] = {what: [] for what in changes}
        failed: dict[str, list[str]] = {what: [] for what in changes}
        errors: dict[str, list[str]] = {what: [] for what in changes}
        calls = dict.fromkeys(changes, 0)
        for _ in range(times):
            for what, change in changes.items():
                caller.forget()
                known, served = len(caller.failed), len(caller.served)
                results, reasons = await repeated(1, change)
                took[what] += results
                failed[what] += reasons
                await asyncio.sleep(_SETTLED)
                errors[what] += [one.why for one in caller.failed[known:]]
                calls[what] += len(caller.served) - served + len(caller.failed) - known
        return [
            Measured.of(what, took[what], 300, failed[what], connections=calls[what], errors=errors[what])
            for what in changes
        ]

    async def _exclude(self, node: str, value: str | None) -> None:
        patch = {"metadata": {"labels": {EXCLUDED: value}}}
        await self.here.client.request("PATCH", NODES.path(name=node), patch)

    async def _set_ports(self, name: str, ports: list[int]) -> None:
        """Set the ports of a Service; those that stay keep their node ports."""
        found = Object(await self.here.client.request("GET", SERVICES.path(NAMESPACE, name)))
        known = {
            port["port"]: {"nodePort": port["nodePort"]}
            for port in found.spec["ports"]
            if port.get("nodePort")
        }
        wanted = [
            port | known.get(port["port"], {}) for port in self.ground.service(name, ports)["spec"]["ports"]
        ]
        await self.here.client.request("PATCH", SERVICES.path(NAMESPACE, name), {"spec": {"ports": wanted}})

    async def envoys(self) -> list[Process]:
        return list(await Processes(self.here.sandbox.folder / "edge").found("edge"))

    async def pids(self) -> dict[str, int]:
        """The processes of the sandbox, with its Envoys and without Pods, by name."""
        envoys = {f"envoy {n}" if n else "envoy": one.pid for n, one in enumerate(await self.envoys())}
        return self.here.pids() | envoys

    async def usage(self) -> dict[str, Usage]:
        """The usage of these processes, and that of the benchmark as `bench`."""
        return self.here.usage() | {name: usage(pid) for name, pid in (await self.pids()).items()}
