"""Well-behaved objects beside hostile or slow ones: how long their reconciles take."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.servers import kubeconfigs
from tools.bench import client as clients
from tools.bench import shoots
from tools.bench.client import Observer
from tools.bench.extensions_bastions import reachable
from tools.bench.figures import Spread
from tools.bench.shoots import Shoots
from tools.bench.tables import table_of
from tools.bench.world import World
from windowbox.models.extensions import OPERATION
from windowbox.models.refs import DNSRECORDS, INFRASTRUCTURES, SERVICES

COUNT = 8
"""Neighbours of each kind."""
_FIRST = 9000
"""Their numbers."""
_PAUSE = 0.1
_SERVICES = "default"

Act = Callable[[int], Awaitable[None]]


@dataclass(frozen=True)
class Latency:
    """The reconciles of one kind in one phase."""

    phase: str
    kind: str
    count: int
    latency: Spread


@dataclass
class Neighbours:
    """Records, Infrastructures and Services, reconciled one after the other."""

    here: World
    observers: Mapping[str, Observer]
    rounds: int = 0
    """How many there have been, in all phases: no Service has the name of a former one."""

    async def measured(self, phase: str, until: asyncio.Task[Any], least: int = 1) -> list[Latency]:
        """Reconcile in turn until the task is done, each kind at least so many times."""
        return latencies(phase, await self.seconds(until, least))

    async def seconds(self, until: asyncio.Task[Any], least: int = 1) -> dict[str, list[float]]:
        """The same: how long each reconcile took, by kind."""
        found: dict[str, list[float]] = defaultdict(list)
        end = self.rounds + least
        while not until.done() or self.rounds < end:
            number = self.rounds
            for kind, act in self._acts.items():
                name = self._named(kind, number)
                found[kind].append(await self._took(self.observers[kind], act, number, name))
                await asyncio.sleep(_PAUSE)  # the pace of the load
            self.rounds += 1
        await until
        return found

    async def _took(self, observer: Observer, act: Act, number: int, name: str) -> float:
        observer.expect()
        started = time.perf_counter()
        await act(number)
        return (await observer.all_of([name]))[name] - started

    @property
    def _acts(self) -> dict[str, Act]:
        return {"Infrastructure": self._infrastructure, "DNSRecord": self._record, "Service": self._service}

    async def _infrastructure(self, number: int) -> None:
        namespace = shoots.namespace(_FIRST + number % COUNT)
        path = INFRASTRUCTURES.path(namespace, self._named("Infrastructure", number))
        await self._change(path, {"region": f"local-{number}"})

    async def _record(self, number: int) -> None:
        path = DNSRECORDS.path(clients.NAMESPACE, self._named("DNSRecord", number))
        await self._change(path, {"values": [f"10.9.{number >> 8}.{number & 255}"]})

    async def _change(self, path: str, spec: dict[str, Any]) -> None:
        """Ask for a reconcile of another spec: it is done when the status has the new generation."""
        patch = {"metadata": {"annotations": {OPERATION: "reconcile"}}, "spec": spec}
        await self.here.client.request("PATCH", path, patch)

    @property
    def _shoots(self) -> Shoots:
        return Shoots(self.here.client, kubeconfigs.provider(self.here.sandbox.folder))

    def _named(self, kind: str, number: int) -> str:
        match kind:
            case "Infrastructure":
                return shoots.named(_FIRST + number % COUNT)
            case "DNSRecord":
                return clients.name(_FIRST + number % COUNT)
        return _service_name(number)

    async def _service(self, number: int) -> None:
        """Create a Service, and delete the one before."""
        before = SERVICES.path(_SERVICES, _service_name(number - 1))
        await self.here.client.request("DELETE", before, accepted=(200, 404))
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        body = {"metadata": {"name": _service_name(number)}, "spec": spec}
        await self.here.client.request("POST", SERVICES.path(_SERVICES), body)

    async def prepare(self) -> None:
        """Create the records and Infrastructures."""
        everybody = range(_FIRST, _FIRST + COUNT)
        for observer in self.observers.values():
            observer.expect()
        await self.here.client.each(everybody, self._shoots.prepare)
        begun = await self.here.client.each(everybody, self._shoots.infrastructure, shoots.named)
        await self.observers["Infrastructure"].all_of(begun)
        await self.observers["DNSRecord"].all_of(
            await self.here.client.each(everybody, self.here.client.create)
        )


@contextlib.asynccontextmanager
async def neighbours(here: World) -> AsyncIterator[Neighbours]:
    """Neighbours whose objects are there."""
    async with (
        # Not those of others, which are large: the names of neighbours are known.
        Observer.watching(here.client, INFRASTRUCTURES, "", only=_is_neighbour) as infrastructures,
        Observer.watching(here.client, SERVICES, _SERVICES, reachable) as services,
    ):
        observers = {"Infrastructure": infrastructures, "DNSRecord": here.observer, "Service": services}
        made = Neighbours(here, observers)
        await made.prepare()
        yield made


def latencies(phase: str, seconds: Mapping[str, list[float]]) -> list[Latency]:
    return [Latency(phase, kind, len(took), Spread.of(took)) for kind, took in seconds.items()]


def shown(title: str, latencies: list[Latency]) -> Any:
    """A table of latencies."""
    table = table_of(title, "phase", "neighbours", "reconciles", "p50 ms", "p95 ms", "max ms")
    for one in latencies:
        spread = one.latency
        table.add_row(
            one.phase, one.kind, str(one.count), *(f"{v:.0f}" for v in (spread.p50, spread.p95, spread.max))
        )
    return table


def _service_name(number: int) -> str:
    return f"neighbour-{number}"


def _is_neighbour(line: bytes) -> bool:
    return b'"shoot--bench--9' in line
