"""Latency of well-behaved objects, alone and beside those of a slow provider, or beside hostile ones."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from rich.console import RenderableType

from sandbox import processes, roles
from sandbox.options import Options
from sandbox.servers import certificates
from tools.bench import client as clients
from tools.bench import shoots
from tools.bench.client import Observer, each
from tools.bench.extensions import reachable
from tools.bench.report import Report, Spread, say, table
from tools.bench.shoots import Shoots
from tools.bench.usage import Meter
from tools.bench.world import World, world
from windowbox.models.extensions import OPERATION
from windowbox.models.refs import DNSRECORDS, INFRASTRUCTURES, SERVICES

_COUNT = 8
"""Neighbours of each kind."""
_FIRST = 9000
"""The first of their numbers."""
_PAUSE = 0.1
_SERVICES = "default"
_SECONDS_EACH = 0.2
"""Between creations of hostile objects: API server and etcd have to keep up with objects of 1.3 MB."""
_SHOWN = 12
"""The most frequent requests of a phase that are shown."""
_LEAST_CPU = 0.5
"""CPU seconds of a process in a phase that is shown."""
_FORWARDED = ("Authorization", "Accept", "Content-Type")


@dataclass(frozen=True)
class Latency:
    """The reconciles of one kind in one phase."""

    phase: str
    kind: str
    count: int
    latency: Spread


@dataclass(frozen=True)
class Cost:
    """What one phase cost the servers, and windowbox."""

    phase: str
    seconds: float
    cpu: Mapping[str, float]
    """CPU seconds of each process."""
    requests: Mapping[str, int]
    """Those of windowbox to the API server."""


@dataclass
class Neighbours:
    """Infrastructures, DNSRecords and Services, reconciled one after the other."""

    here: World
    observers: Mapping[str, Observer]
    """By kind."""
    rounds: int = 0
    """Rounds in all phases so far. Service names derive from it, so that none is used twice."""

    async def reconcile(self, until: asyncio.Task[Any], least: int = 1) -> dict[str, list[float]]:
        """Reconcile each kind in turn until the task is done, `least` times or more: the seconds by kind."""
        found: dict[str, list[float]] = defaultdict(list)
        end = self.rounds + least
        while not until.done() or self.rounds < end:
            number = self.rounds
            # One at a time: the latency is that of one object, not of a queue of neighbours.
            for kind, observer in self.observers.items():
                observer.expect()
                started = time.perf_counter()
                name = await self._change(kind, number)
                found[kind].append((await observer.all_of([name]))[name] - started)
                await asyncio.sleep(_PAUSE)  # the pace of the load
            self.rounds += 1
        await until
        return found

    async def _change(self, kind: str, number: int) -> str:
        """Request a reconcile of another spec; or replace the Service by another. Returns the name."""
        request, which = self.here.client.request, _FIRST + number % _COUNT
        if kind == "Service":
            name = f"neighbour-{number}"
            before = SERVICES.path(_SERVICES, f"neighbour-{number - 1}")
            await request("DELETE", before, accepted=(200, 404))
            spec: dict[str, Any] = {"type": "LoadBalancer", "ports": [{"port": 80}]}
            await request("POST", SERVICES.path(_SERVICES), {"metadata": {"name": name}, "spec": spec})
            return name
        if kind == "Infrastructure":
            name, spec = shoots.named(which), {"region": f"local-{number}"}
            path = INFRASTRUCTURES.path(shoots.namespace(which), name)
        else:
            name, spec = clients.name(which), {"values": [f"10.9.{number >> 8}.{number & 255}"]}
            path = DNSRECORDS.path(clients.NAMESPACE, name)
        await request("PATCH", path, {"metadata": {"annotations": {OPERATION: "reconcile"}}, "spec": spec})
        return name


@contextlib.asynccontextmanager
async def _neighbours(here: World) -> AsyncIterator[Neighbours]:
    """Create the records and Infrastructures; Services are created as they are measured."""

    def is_neighbour(line: bytes) -> bool:
        # Events of other Infrastructures are large, and skipped without decoding.
        return b'"shoot--bench--9' in line

    async with (
        Observer.watching(here.client, INFRASTRUCTURES, "", only=is_neighbour) as infrastructures,
        Observer.watching(here.client, SERVICES, _SERVICES, reachable) as services,
    ):
        made, numbers = Shoots.within(here), range(_FIRST, _FIRST + _COUNT)
        await each(numbers, made.prepare)
        await each(numbers, made.infrastructure)
        await infrastructures.all_of(map(shoots.named, numbers))
        await each(numbers, here.client.create)
        await here.observer.all_of(map(clients.name, numbers))
        observers = {"Infrastructure": infrastructures, "DNSRecord": here.observer, "Service": services}
        yield Neighbours(here, observers)


@contextlib.asynccontextmanager
async def _costing(here: World, phase: str, costs: list[Cost]) -> AsyncIterator[None]:
    """Append what the phase costs."""
    here.audit.requests()
    meter = Meter(here.usage())
    yield
    reading = meter.read(here.usage())
    requests = dict(here.audit.requests().most_common(_SHOWN))
    cpu = {name: round(used, 2) for name, used in reading.cpu.items() if used >= _LEAST_CPU}
    costs.append(Cost(phase, round(reading.seconds, 1), cpu, requests))


def _costs(costs: list[Cost]) -> RenderableType:
    """What each phase cost, as a table."""

    def listed(found: Mapping[str, float]) -> str:
        return ", ".join(f"{name} {count:g}" for name, count in found.items())

    return table(
        "What the phases cost",
        costs,
        {
            "phase": lambda one: one.phase,
            "s": lambda one: f"{one.seconds:.0f}",
            "CPU seconds": lambda one: listed(dict(sorted(one.cpu.items(), key=lambda at: -at[1]))),
            "requests": lambda one: listed(one.requests),
        },
    )


def _report(title: str, phases: Mapping[str, Mapping[str, list[float]]]) -> Report:
    found = [
        Latency(phase, kind, len(took), Spread.of(took))
        for phase, kinds in phases.items()
        for kind, took in kinds.items()
    ]
    shown = table(
        title,
        found,
        {
            "phase": lambda one: one.phase,
            "neighbours": lambda one: one.kind,
            "reconciles": lambda one: str(one.count),
            "p50 ms": lambda one: f"{one.latency.p50:.0f}",
            "p95 ms": lambda one: f"{one.latency.p95:.0f}",
            "max ms": lambda one: f"{one.latency.max:.0f}",
        },
    )
    return Report(found, [shown])


async def beside_hostile_objects(count: int, rounds: int, seed: int) -> Report:
    """Neighbours of `count` hostile objects, and before, of the same objects of types without a worker."""
    # The fuzzer belongs to the tests: only a checkout has it.
    from tests.support.hostile import manifests
    from tests.support.hostile.attack import attack

    costs = list[Cost]()
    async with world("hostile", Options(simulated_nodes=2)) as here, _neighbours(here) as others:
        await here.quiet()
        say("neighbours alone")
        async with _costing(here, "alone", costs):
            phases = {"alone": await others.reconcile(asyncio.create_task(asyncio.sleep(0)), rounds)}
        async with attack(here.sandbox, here.client, max(12, count // 10), seed) as attacking:
            for phase, served in (("beside unserved objects", False), ("beside hostile objects", True)):
                objects = manifests.objects(count, attacking.namespaces, seed)
                thrown = objects if served else map(manifests.ignored, objects)
                say(f"{count} objects: neighbours {phase}")
                async with _costing(here, phase, costs):
                    phases[phase] = await others.reconcile(
                        asyncio.create_task(attacking.create(thrown, _SECONDS_EACH))
                    )
                say(f"{len(attacking.made)} were accepted by the API server; deleting them")
                await attacking.delete()
                attacking.made.clear()
                await here.quiet()
    report = _report("Neighbours of hostile objects", phases)
    return Report({"latencies": report.figures, "costs": costs}, [*report.parts, _costs(costs)])


async def of_a_slow_provider(count: int, delay: float, rounds: int, turns: int) -> Report:
    """Neighbours alone, and beside `count` Infrastructures of a provider that answers after `delay` seconds.

    The phases alternate: on a shared machine, the load of other programs then affects both alike.
    """
    phases: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    async with (
        world("fairness", Options(simulated_nodes=2)) as here,
        _neighbours(here) as others,
        _slow_provider(here) as slow,
    ):

        async def measure(phase: str, seconds: float) -> None:
            took = await others.reconcile(asyncio.create_task(asyncio.sleep(seconds)), rounds)
            for kind, some in took.items():
                phases[phase][kind] += some

        made = Shoots(here.client, slow.kubeconfig)
        for turn in range(turns):
            # New ones in each turn: an unchanged Infrastructure sends its provider no request.
            mine = range(turn * count, (turn + 1) * count)
            await each(mine, made.prepare)
            await here.quiet()
            say(f"turn {turn + 1} of {turns}: neighbours alone")
            await measure("alone", 0)
            say(f"{count} Infrastructures of a provider that answers after {delay:g} s")
            slow.answer_after(delay)
            await each(mine, made.infrastructure)
            await here.quiet()  # now all of them wait
            await measure("beside the slow provider", delay)
            say(f"{slow.delayed} requests to it so far had to wait")
            slow.answer_at_once()
    return _report("Neighbours of a slow provider", phases)


class SlowProvider:
    """A proxy of an API server that delays its answers."""

    def __init__(self, upstream: aiohttp.ClientSession, kubeconfig: str) -> None:
        self.kubeconfig = kubeconfig
        self.delayed = 0
        """How many requests had to wait."""
        self._upstream, self._delay, self._at_once = upstream, 0.0, asyncio.Event()

    def answer_after(self, delay: float) -> None:
        self._delay = delay
        self._at_once.clear()

    def answer_at_once(self) -> None:
        """End the delay, also of requests that are waiting."""
        self._delay = 0.0
        self._at_once.set()

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        # `answer_at_once` ends the delay of waiting requests, too.
        self.delayed += self._delay > 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._delay):
                await self._at_once.wait()
        headers = {name: request.headers[name] for name in _FORWARDED if name in request.headers}
        forwarded = self._upstream.request(request.method, request.raw_path, data=body, headers=headers)
        async with forwarded as found:
            return web.Response(status=found.status, body=await found.read(), content_type=found.content_type)


@contextlib.asynccontextmanager
async def _slow_provider(here: World) -> AsyncIterator[SlowProvider]:
    """A slow proxy of the sandbox's API server, with a kubeconfig that leads to it."""
    folder, port = here.sandbox.folder / "slow", processes.free_port()
    folder.mkdir()
    authority = certificates.authority(folder)
    pair = certificates.server(authority, folder, "slow", ["127.0.0.1"])
    kubeconfig = yaml.safe_load(roles.provider_kubeconfig(here.sandbox.folder))
    kubeconfig["clusters"][0]["cluster"] = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority-data": base64.b64encode(authority.certificate.read_bytes()).decode(),
    }
    trust = ssl.create_default_context(cafile=str(here.sandbox.api.ca.certificate))
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(pair.certificate, pair.key)
    connector = aiohttp.TCPConnector(ssl=trust, limit=0)
    async with aiohttp.ClientSession(here.sandbox.api.url, connector=connector) as upstream:
        slow = SlowProvider(upstream, str(yaml.safe_dump(kubeconfig)))
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", slow.answer)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=own).start()
        try:
            yield slow
        finally:
            await runner.cleanup()
