"""Load balancers from the API to clients: latency, and the effect of changes on open connections."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sandbox.options import Options
from tools.bench import audit, loadbalancers_nodes
from tools.bench.client import NAMESPACE
from tools.bench.figures import Spread
from tools.bench.loadbalancers_clients import Addresses, Caller, Services, ingress, reached, refused
from tools.bench.loadbalancers_figures import BalancerFigures, Measured
from tools.bench.loadbalancers_nodes import NodeSetup
from tools.bench.usage import machine, usage
from tools.bench.world import World, world
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import NODES, SERVICES
from workers.loadbalancer.edge import status
from workers.loadbalancer.edge.nodes import EXCLUDED
from workers.loadbalancer.envoy.process import Processes

Say = Callable[[str], None]

_NODES = 4
_RATE = 200
_PATIENCE = 30.0
_ENOUGH = 3


async def run(times: int, say: Say, *, simulated: bool = False) -> BalancerFigures:
    """Measure each `times` times."""
    chosen = loadbalancers_nodes.options(_NODES, simulated=simulated)
    untried = "" if chosen.nodes else loadbalancers_nodes.missing()
    say("starting a sandbox with nodes")
    async with opened(chosen) as bench:
        say(f"{bench.ground.kind}: preparing them")
        await bench.ground.prepare()
        return await _measured(bench, times, say, untried)


@contextlib.asynccontextmanager
async def opened(chosen: Options) -> AsyncIterator[Balancers]:
    """Services in a fresh sandbox with the chosen nodes."""
    async with (
        world("loadbalancer", chosen) as here,
        Services.watched(here.client) as services,
        Addresses.followed(here.bus) as addresses,
    ):
        ground = loadbalancers_nodes.ground(here.sandbox, here.client, chosen)
        yield Balancers(here, ground, services, addresses)


async def _measured(bench: Balancers, times: int, say: Say, untried: str) -> BalancerFigures:
    say(f"cold edge, {times} times")
    cold = await bench.cold(times)
    begun, before, own = time.perf_counter(), machine(), await bench.own_cpu()
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
    elsewhere = machine() - before - (await bench.own_cpu() - own)
    return BalancerFigures(
        nodes=bench.ground.kind,
        untried=untried,
        measured=[warm, lost, cold, *changes, gone],
        writes=round(audit.writes(audit.without_events(requests)) / times, 2),
        requests={what: round(n / times, 2) for what, n in sorted(requests.items())},
        elsewhere_percent=round(100 * elsewhere / (time.perf_counter() - begun) / (os.cpu_count() or 1), 1),
    )


@dataclass
class Balancers:
    """Creates and changes Services of type LoadBalancer, and measures what clients see."""

    here: World
    ground: NodeSetup
    services: Services
    addresses: Addresses
    _early: int = 0
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def created(self, name: str) -> tuple[float, str]:
        """Time until a Service's status shows an address, and until a client is served there."""
        await self.ground.create_endpoints(name)
        seen = asyncio.create_task(self.services.sees(name, ingress))
        begun = time.perf_counter()
        manifest = self.ground.service(name, [80])
        await self.here.client.request("POST", SERVICES.path(NAMESPACE), manifest)
        _, service = await seen
        address = ingress(service)
        served, failed = await reached(address, 80)
        self._early += bool(failed)
        return served - begun, address

    def early(self) -> int:
        """How often a status came before the traffic, since the last call."""
        early, self._early = self._early, 0
        return early

    async def deleted(self, name: str, address: str) -> float:
        """Time until the address of a deleted Service is free."""
        freed = asyncio.create_task(self.addresses.freed(address))
        begun = time.perf_counter()
        await self.here.client.request("DELETE", SERVICES.path(NAMESPACE, name))
        return await freed - begun

    async def lives(self, times: int) -> tuple[Measured, Measured]:
        """Create and delete Services."""
        born: list[float] = []
        died: list[float] = []
        failed: list[str] = []
        for _ in attempts(times, failed):
            with noted(failed):
                name = self._name()
                took, address = await self.created(name)
                born.append(took)
                await self._settled()
                died.append(await self.deleted(name, address))
                await self._settled()
        return (
            summed("create", born, 300, failed, early=self.early()),
            summed("delete → free", died, 500, failed),
        )

    async def with_a_node_lost(self, times: int) -> Measured:
        node, failed, took = self.ground.names[-1], list[str](), list[float]()
        await self.ground.drop_packets(node)
        try:
            for _ in attempts(times, failed):
                with noted(failed):
                    name = self._name()
                    seconds, address = await self.created(name)
                    took.append(seconds)
                    await self.deleted(name, address)
        finally:
            await self.ground.repair(node)
        return summed(
            "create, dead node",
            took,
            1500,
            failed,
            early=self.early(),
        )

    async def cold(self, times: int) -> Measured:
        """The first Service of all, each time."""
        took: list[float] = []
        failed: list[str] = []
        for _ in attempts(times, failed):
            with noted(failed):
                await self._cool()
                name = self._name()
                seconds, address = await self.created(name)
                took.append(seconds)
                await self.deleted(name, address)
        return summed("create, cold edge", took, 1000, failed, early=self.early())

    async def changes(self, times: int) -> list[Measured]:
        """Add and remove nodes and ports under constant load."""
        _, address = await self.created("changing")
        caller = Caller(address, 80, self.ground.forwarding_node)
        async with caller.calling(_RATE):
            await asyncio.sleep(1)
            nodes = await self._nodes_change(times, caller)
            ports = await self._ports_change(times, address, caller)
        return [*nodes, *ports]

    async def _nodes_change(self, times: int, caller: Caller) -> list[Measured]:
        node = self.ground.names[1]

        async def out() -> float:
            begun = time.perf_counter()
            await self._exclude(node, "true")
            return await caller.left(node, begun) - begun

        async def back() -> float:
            begun = time.perf_counter()
            await self._exclude(node, None)
            return await caller.entered(node, begun) - begun

        return await self._by_turns(times, caller, {"node out": out, "node in": back})

    async def _ports_change(self, times: int, address: str, caller: Caller) -> list[Measured]:
        async def added() -> float:
            begun = time.perf_counter()
            await self._ports("changing", [80, 81])
            return (await reached(address, 81))[0] - begun

        async def removed() -> float:
            begun = time.perf_counter()
            await self._ports("changing", [80])
            return await refused(address, 81) - begun

        return await self._by_turns(times, caller, {"port added": added, "port removed": removed})

    async def _by_turns(
        self, times: int, caller: Caller, acts: dict[str, Callable[[], Awaitable[float]]]
    ) -> list[Measured]:
        took: dict[str, list[float]] = {what: [] for what in acts}
        failed: dict[str, list[str]] = {what: [] for what in acts}
        errors: dict[str, list[str]] = {what: [] for what in acts}
        calls = dict.fromkeys(acts, 0)
        for _ in range(times):
            for what, act in acts.items():
                caller.forget()
                known, served = len(caller.failed), len(caller.served)
                with noted(failed[what]):
                    took[what].append(await act())
                await self._settled()
                errors[what] += caller.failed[known:]
                calls[what] += len(caller.served) - served + len(caller.failed) - known
        return [
            summed(what, took[what], 300, failed[what], connections=calls[what], errors=errors[what])
            for what in acts
        ]

    async def _exclude(self, node: str, value: str | None) -> None:
        patch = {"metadata": {"labels": {EXCLUDED: value}}}
        await self.here.client.request("PATCH", NODES.path(name=node), patch)

    async def _ports(self, name: str, ports: list[int]) -> None:
        spec = self.ground.service(name, ports)["spec"]
        found = Object(await self.here.client.request("GET", SERVICES.path(NAMESPACE, name)))
        known = {port["port"]: port["nodePort"] for port in found.spec["ports"]}
        wanted = [
            port | ({"nodePort": n} if (n := known.get(port["port"])) else {}) for port in spec["ports"]
        ]
        await self.here.client.request("PATCH", SERVICES.path(NAMESPACE, name), {"spec": {"ports": wanted}})

    async def _cool(self) -> None:
        """Wait until no Envoy runs, and the worker knows that none is needed."""
        await self.here.sandbox.stop("worker-1")
        for envoy in await self.envoys():
            await envoy.end()
        shutil.rmtree(self._edge, ignore_errors=True)
        await self.here.sandbox.start("worker-1")
        async with asyncio.timeout(_PATIENCE):
            while await status.query(self.here.bus) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await self.here.quiet(calm=0.5)

    async def _settled(self) -> None:
        """Wait for the effects of former steps."""
        await asyncio.sleep(0.2)

    async def envoys(self) -> list[Any]:
        return list(await Processes(self._edge).found("edge"))

    async def own_cpu(self) -> float:
        """CPU seconds of the sandbox's processes, without Pods."""
        envoys = [usage(envoy.pid).cpu for envoy in await self.envoys()]
        return sum(used.cpu for used in self.here.usage().values()) + sum(envoys)

    @property
    def _edge(self) -> Any:
        return self.here.sandbox.folder / "edge"

    def _name(self) -> str:
        return f"web-{next(self._numbers)}"


def attempts(times: int, failed: list[str]) -> Iterator[int]:
    """`times` attempts; fewer after consecutive failures, which would take too long."""
    for number in range(times):
        if len(failed) < _ENOUGH:
            yield number


@contextlib.contextmanager
def noted(failed: list[str]) -> Any:
    """A timeout of one attempt must not end the others."""
    try:
        yield
    except (WindowboxError, TimeoutError) as error:
        failed.append(str(error) or "not after a long time")


def summed(what: str, took: list[float], aim: float | None, failed: list[str], **more: Any) -> Measured:
    return Measured(what, len(took), aim, Spread.of(took) if took else None, failed, **more)
