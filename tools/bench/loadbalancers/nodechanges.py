"""Changes beside many ports: what they cost the edge and its event loop, and when Envoy has them.

Run as a program, it is the health port of all nodes: it reads lines from the standard input, each the address
of a node that fails from then on, or that is healthy again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import orjson
from rich.text import Text

from bus import streams, subjects
from bus.clusters.registry import Registry
from bus.messages import OPERATION, UID, VERSION
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus, connected
from bus.workqueue.queue import Queue
from sandbox import processes
from tools.bench.bus.emptyruns import CHECKOUT, bus_server
from tools.bench.client import background, until
from tools.bench.report import Report, Spread, say, table
from tools.bench.usage import private, running_first, usage
from windowbox.errors import Refused
from windowbox.models.loadbalancers import KUBE_PROXY_PORT
from windowbox.models.refs import NODES, RUNTIME, SERVICES, ObjectRef, Resource
from windowbox.settings.bussettings import Access
from windowbox.settings.lbsettings import LoadBalancerSettings, Range
from windowbox.telemetry import garbage
from workers.loadbalancer.edge.controller import EdgeParts, EdgeTerms
from workers.loadbalancer.edgestate import POOL, States
from workers.loadbalancer.envoy.process import Processes
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.entries import Holder
from workers.loadbalancer.ipam.store import AddressStore

_NAMESPACE = "bench"
_FIRST_PORT, _FIRST_NODE_PORT = 10_000, 20_000
_STEP = 0.001
_PATIENCE = 120.0
_CALM, _BUSY = 3.0, 0.03
"""Seconds, and how much of them the process may be busy at rest."""
_REST = 30.0


@dataclass(frozen=True)
class NodeChangeFigures:
    """One change of one node's health, or of one Service: of `bench loadbalancer --nodes`."""

    change: str
    endpoints: int
    """Ports times nodes."""
    hold_ms: Spread
    """The longest time for which the event loop was held, of each change."""
    hold_cpu_ms: Spread
    """The longest time that its thread worked without a turn: without the machine's other work."""
    cpu_ms: Spread
    """CPU of the process with the edge, in all its threads."""
    envoy_ms: Spread
    """CPU of Envoy."""
    took_ms: Spread
    """From the change until Envoy has taken it."""


@dataclass(frozen=True)
class RestFigures:
    """The edge and its Envoy while nothing happens: of `bench loadbalancer --nodes`."""

    services: int
    ports: int
    nodes: int
    edge_percent: float
    """CPU of the process with the edge and this benchmark, in percent of one core."""
    envoy_percent: float
    edge_mb: float
    """Private memory."""
    envoy_mb: float


class Holds:
    """The longest time for which the event loop was held."""

    def __init__(self) -> None:
        self.longest = self.longest_cpu = 0.0

    async def run(self) -> None:
        """Measure; never returns."""
        while True:
            begun, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_STEP)
            self.longest = max(self.longest, time.perf_counter() - begun - _STEP)
            self.longest_cpu = max(self.longest_cpu, time.thread_time() - cpu)


async def measure(services: int, ports: int, nodes: int, times: int, *, first: bool = False) -> Report:
    """Measure an edge with an Envoy of its own; the bus is real, the API server is not there."""
    prefix = f"127.{64 + os.getpid() % 32}"
    addresses = [f"{prefix}.{number // 250}.{number % 250 + 1}" for number in range(nodes + times)]
    async with (
        bus_server() as url,
        connected(Access(url)) as bus,
        _health_ports(addresses) as set_health,
    ):
        await streams.ensure(bus)
        holds = Holds()
        with tempfile.TemporaryDirectory() as folder:
            range_ = Range(prefixes=(ip_network(f"{prefix}.96.0/19"),))
            async with _edge(bus, Path(folder), range_) as edge, _echoing(addresses[:nodes]):
                say(f"{services} Services with {ports} ports, {nodes} nodes")
                for number, address in enumerate(addresses[:nodes]):
                    await _see(bus, NODES, f"node-{number}", _node(number, address))
                for number in range(services):
                    await _serve(bus, edge.store, prefix, number, ports)
                for kind in (SERVICES, NODES):
                    await bus.publish(subjects.listed(RUNTIME, kind.id), b"")
                least = 3 * services * ports  # a listener, a cluster and endpoints of each

                async def served() -> bool:
                    return edge.taken() >= least

                await until(served, _PATIENCE)
                at_rest = await _at_rest(edge, services, ports, nodes)
                scheduled = running_first([os.getpid()]) if first else contextlib.nullcontext()
                with scheduled:
                    async with background(holds.run(), "holds"):
                        sizes = (services, ports, nodes)
                        bench = _Bench(bus, edge, set_health, addresses, holds, prefix, *sizes)
                        found = [await bench.measured(what, times) for what in bench.changes]
    figures = [one.of(services * ports * nodes) for one in found]
    rest = (
        f"At rest: edge {at_rest.edge_percent:.2f} and Envoy {at_rest.envoy_percent:.2f} % of one core, "
        f"{at_rest.edge_mb:.0f} and {at_rest.envoy_mb:.0f} MB of private memory"
    )
    return Report([at_rest, *figures], [_shown(services, ports, nodes, figures), Text(rest)])


async def _at_rest(edge: _Edge, services: int, ports: int, nodes: int) -> RestFigures:
    """Measure once the edge has reported all, which takes longer than to serve it."""
    (envoy,) = await edge.envoys.found("edge")

    async def is_calm() -> bool:
        before = time.process_time()
        await asyncio.sleep(_CALM)
        return time.process_time() - before < _BUSY * _CALM

    await until(is_calm, _PATIENCE)
    say(f"at rest for {_REST:g} s")
    begun, cpu, envoy_cpu = time.perf_counter(), time.process_time(), usage(envoy.pid).cpu
    await asyncio.sleep(_REST)
    seconds = time.perf_counter() - begun
    return RestFigures(
        services,
        ports,
        nodes,
        100 * (time.process_time() - cpu) / seconds,
        100 * (usage(envoy.pid).cpu - envoy_cpu) / seconds,
        private(os.getpid()),
        private(envoy.pid),
    )


@dataclass(frozen=True)
class _Samples:
    """Seconds, for each change of one kind."""

    change: str
    holds: list[float]
    holds_cpu: list[float]
    cpu: list[float]
    envoy: list[float]
    took: list[float]

    def of(self, endpoints: int) -> NodeChangeFigures:
        kinds = (self.holds, self.holds_cpu, self.cpu, self.envoy, self.took)
        return NodeChangeFigures(self.change, endpoints, *map(Spread.of, kinds))


@dataclass
class _Bench:
    """The changes that are measured."""

    bus: Bus
    edge: _Edge
    set_health: Callable[[str], Awaitable[None]]
    addresses: list[str]
    holds: Holds
    prefix: str
    services: int
    ports: int
    nodes: int

    @property
    def changes(self) -> dict[str, Callable[[int], Awaitable[None]]]:
        return {
            "a node fails, or recovers": self._fail,
            "a node is added": self._add_node,
            "a Service changes": self._change_service,
            "a Service is added": self._add_service,
            "the edge restarts": self._restart,
        }

    async def _fail(self, number: int) -> None:
        """Let one node fail, and be healthy again in its turn: some have to be left."""
        await self.set_health(self.addresses[number // 2 % self.nodes])

    async def _add_node(self, number: int) -> None:
        await _see(self.bus, NODES, f"new-{number}", _node(number, self.addresses[-1 - number]))

    async def _change_service(self, number: int) -> None:
        changed = _service(0, self.ports, number + 1)
        await _see(self.bus, SERVICES, "web-0", changed, _NAMESPACE)

    async def _add_service(self, number: int) -> None:
        await _serve(self.bus, self.edge.store, self.prefix, self.services + number, self.ports)

    async def _restart(self, _: int) -> None:
        """Restart the edge, with a connection that must not be cut."""
        reader, writer = await asyncio.open_connection(f"{self.prefix}.100.1", _FIRST_PORT)
        await self.edge.end()
        self.edge.begin()

        async def ready() -> bool:
            return self.edge.settled()

        await until(ready, _PATIENCE, 0.01)
        writer.write(b"still there?\n")
        if await asyncio.wait_for(reader.readline(), _PATIENCE) != b"still there?\n":
            raise Refused("the restart of the edge has cut a connection")
        writer.close()

    async def measured(self, what: str, times: int) -> _Samples:
        say(f"{what}, {times} times")
        samples, holds = _Samples(what, [], [], [], [], []), self.holds
        (envoy,) = await self.edge.envoys.found("edge")
        for number in range(times):
            before = self.edge.taken()

            async def differs(before: int = before) -> bool:
                return what == "the edge restarts" or self.edge.taken() > before

            holds.longest = holds.longest_cpu = 0.0
            cpu, envoy_cpu, begun = time.process_time(), usage(envoy.pid).cpu, time.perf_counter()
            await self.changes[what](number)
            await until(differs, _PATIENCE, 0.01)
            samples.took.append(time.perf_counter() - begun)
            await asyncio.sleep(5)  # states are reported, and Envoy's memory is returned
            samples.holds.append(holds.longest)
            samples.holds_cpu.append(holds.longest_cpu)
            samples.cpu.append(time.process_time() - cpu)
            samples.envoy.append(usage(envoy.pid).cpu - envoy_cpu)
        return samples


def _shown(services: int, ports: int, nodes: int, figures: list[NodeChangeFigures]) -> Any:
    def spread(found: Spread) -> str:
        return f"{found.p50:.0f} / {found.max:.0f}"

    return table(
        f"{services} Services with {ports} ports, {nodes} nodes; p50 / max of each change, ms",
        figures,
        {
            "change": lambda one: one.change,
            "longest hold of the loop": lambda one: spread(one.hold_ms),
            "of its own CPU": lambda one: spread(one.hold_cpu_ms),
            "CPU of the edge": lambda one: spread(one.cpu_ms),
            "of Envoy": lambda one: spread(one.envoy_ms),
            "until Envoy has it": lambda one: spread(one.took_ms),
        },
    )


@dataclass
class _Edge:
    """An edge controller, and its Envoy."""

    terms: EdgeTerms
    store: AddressStore
    envoys: Processes
    _running: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._running = asyncio.create_task(self.terms.run(), name="edge")

    async def end(self) -> None:
        if self._running:
            self._running.cancel()
            await asyncio.wait({self._running})

    def taken(self) -> int:
        """How many resources Envoy has taken, once it has taken all; 0 before."""
        found: Any = self.terms.describe()["resources"]
        return int(found["taken"]) if self.settled() else 0

    def settled(self) -> bool:
        """Whether Envoy has everything, of all load balancers."""
        found: Any = self.terms.describe()["resources"]
        return bool(found and found["settled"] and self.terms.describe()["load balancers"])


@contextlib.asynccontextmanager
async def _edge(bus: Bus, folder: Path, range_: Range) -> AsyncIterator[_Edge]:
    store, states, registry = AddressStore(bus, [range_]), States(Bucket(bus, streams.EDGES)), Registry(bus)
    settings, envoys = LoadBalancerSettings(ranges=(range_,), folder=folder), Processes(folder)
    terms = EdgeTerms(EdgeParts(bus, registry, store, states, envoys, settings, Queue(bus, POOL)))
    async with (
        background(store.run(), "addresses"),
        background(states.bucket.run(), "states"),
        background(registry.run(), "registry"),
    ):
        await store.synced.wait()
        await addressclaims.adopt_all(store, [])
        made = _Edge(terms, store, envoys)
        made.begin()
        try:
            with garbage.bounded():  # as in the process of an edge
                yield made
        finally:
            await made.end()
            for envoy in await envoys.found("edge"):
                await envoy.end()


async def _serve(bus: Bus, store: AddressStore, prefix: str, number: int, ports: int) -> None:
    """A Service with an address."""
    await _hold(store, number, f"{prefix}.{100 + number // 250}.{number % 250 + 1}")
    await _see(bus, SERVICES, f"web-{number}", _service(number, ports), _NAMESPACE)


@contextlib.asynccontextmanager
async def _echoing(addresses: Sequence[str]) -> AsyncIterator[None]:
    """Nodes that echo at the first node port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, addresses, _FIRST_NODE_PORT)
    try:
        yield
    finally:
        server.close()


async def _see(bus: Bus, kind: Resource, name: str, raw: dict[str, Any], namespace: str = "") -> None:
    """Mirror an object, as a watcher does."""
    headers = {OPERATION: "MODIFIED", UID: name, VERSION: str(time.monotonic_ns())}
    ref = ObjectRef(RUNTIME, kind.id, namespace, name)
    await bus.publish(subjects.seen(ref), orjson.dumps(raw), headers)


async def _hold(store: AddressStore, number: int, address: str) -> None:
    name = f"web-{number}"
    holder = Holder(cluster=RUNTIME, namespace=_NAMESPACE, name=name, uid=name, since=1.0)
    await store.write(address, (holder,), 0)


def _node(number: int, address: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"node-{number}", "uid": f"node-{number}"},
        "spec": {},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


def _service(number: int, ports: int, version: int = 0) -> dict[str, Any]:
    first = _FIRST_NODE_PORT + number * ports
    listed = [
        {"name": f"p{one}", "port": _FIRST_PORT + one, "protocol": "TCP", "nodePort": first + one}
        for one in range(ports)
    ]
    annotations = {"loadbalancer.windowbox/idle-timeout": f"{600 + version}s"}
    return {
        "metadata": {
            "name": f"web-{number}", "namespace": _NAMESPACE, "uid": f"web-{number}",
            "annotations": annotations,
        },
        "spec": {"type": "LoadBalancer", "ports": listed, "ipFamilies": ["IPv4"]},
    }  # fmt: skip


@contextlib.asynccontextmanager
async def _health_ports(addresses: Sequence[str]) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """A process that answers health checks of all nodes; the function changes the health of one."""
    child = await asyncio.create_subprocess_exec(
        *processes.dying_with_parent([sys.executable, "-m", __name__, *addresses]),
        cwd=CHECKOUT,
        stdin=PIPE,
        stdout=PIPE,
    )
    assert child.stdin
    assert child.stdout
    if not await child.stdout.readline():  # it listens
        raise Refused(f"health ports {KUBE_PROXY_PORT} of {addresses[0]} and more cannot be opened")
    writer = child.stdin

    async def set_health(address: str) -> None:
        writer.write(f"{address}\n".encode())
        await writer.drain()

    try:
        yield set_health
    finally:
        writer.close()
        await child.wait()


async def _answer_health(addresses: Sequence[str]) -> None:
    """Answer the health checks of the nodes at these addresses, until the standard input ends."""
    failing = set[str]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            address = writer.get_extra_info("sockname")[0]
            status = b"503 Service Unavailable" if address in failing else b"200 OK"
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % status)
            await writer.drain()
        writer.close()

    await asyncio.start_server(answer, addresses, KUBE_PROXY_PORT)
    print("ready", flush=True)
    lines = iter(sys.stdin.readline, "")
    while line := await asyncio.to_thread(next, lines, ""):
        failing ^= {line.strip()}


if __name__ == "__main__":
    asyncio.run(_answer_health(sys.argv[1:]))
