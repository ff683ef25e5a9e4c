"""Infrastructures of type local, alone and beside six times as many of clouds, all created at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox import roles
from sandbox.options import TOGETHER, Options
from sandbox.servers import manifests
from sandbox.shoots import cloudmanifests
from sandbox.shoots.records import Shoot
from tools.bench import shoots
from tools.bench.client import Observer, each
from tools.bench.report import MachineFacts, Report, Spread, say, table
from tools.bench.shoots import SECRET, Shoots
from tools.bench.world import World, world
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.models.extensions import OPERATION
from windowbox.models.refs import CLUSTERS, INFRASTRUCTURES, SECRETS


@dataclass(frozen=True)
class Waited:
    """How long Infrastructures took, from their creation to Succeeded."""

    phase: str
    type: str
    count: int
    latency: Spread


@dataclass(frozen=True, kw_only=True)
class CrowdFigures(MachineFacts):
    """The result of `bench clouds`."""

    waited: Sequence[Waited]


@dataclass(frozen=True)
class _Crowd:
    """Creates Infrastructures, and measures how long each takes."""

    here: World
    observer: Observer
    local: Shoots

    async def measure(self, phase: str, acts: Mapping[int, Callable[[int], Awaitable[None]]]) -> list[Waited]:
        """Create them, each by its act, and wait for all."""
        self.observer.expect()
        started = await each(acts, lambda number: acts[number](number))
        begun = {shoots.named(number): at for number, at in started.items()}
        ended = await self.observer.all_of(begun)
        await self.here.quiet()
        by_type: dict[str, list[float]] = {}
        for name, at in begun.items():
            type_ = str(self.observer.objects[name].spec["type"])
            by_type.setdefault(type_, []).append(ended[name] - at)
        return [Waited(phase, type_, len(took), Spread.of(took)) for type_, took in sorted(by_type.items())]

    async def prepare_cloud(self, number: int) -> None:
        """The Cluster and the credentials of a Shoot of a cloud, in place of those of type local."""
        shoot, home = _shoot(number), shoots.namespace(number)
        cluster = cloudmanifests.cluster(shoot, "10.3.0.0/16", "10.4.0.0/16")
        cluster["metadata"]["name"] = cluster["spec"]["shoot"]["status"]["technicalID"] = home
        await self.here.client.request("PATCH", CLUSTERS.path(name=home), cluster)
        data = {"data": {"kubeconfig": None, **cloudmanifests.credentials(shoot)["data"]}}
        await self.here.client.request("PATCH", SECRETS.path(home, SECRET), data)

    async def create_cloud(self, number: int) -> None:
        home, found = shoots.namespace(number), cloudmanifests.infrastructure(_shoot(number))
        found["spec"]["secretRef"] = {"name": SECRET, "namespace": home}
        found["metadata"] = {"name": shoots.named(number), "annotations": {OPERATION: "reconcile"}}
        await self.here.client.request("POST", INFRASTRUCTURES.path(home), found)


def _shoot(number: int) -> Shoot:
    return Shoot(name=f"n{number}", ports={}, cloud=CLOUD_TYPES[number % len(CLOUD_TYPES)])


async def measure(local: int, of_each: int) -> Report:
    """`local` Infrastructures alone, beside `of_each` of each cloud, and beside as many more of local."""
    crowd = of_each * len(CLOUD_TYPES)
    alone, beside, among = (range(i * local, (i + 1) * local) for i in range(3))
    of_clouds = range(3 * local, 3 * local + crowd)
    more = range(3 * local + crowd, 3 * local + 2 * crowd)
    async with (
        world("clouds", Options.model_validate(TOGETHER)) as here,
        Observer.watching(here.client, INFRASTRUCTURES, "") as observer,
    ):
        made = _Crowd(here, observer, Shoots.within(here))
        say(f"{more.stop} Shoots, each with a namespace, a Cluster and a Secret")
        await here.client.request("POST", SECRETS.path(manifests.SYSTEM_NAMESPACE), _provider(here))
        await each(range(more.stop), made.local.prepare)
        await each(of_clouds, made.prepare_cloud)
        await here.quiet()
        create = made.local.infrastructure
        say(f"{local} Infrastructures of type local alone; then beside {crowd} of clouds, and of type local")
        found = await made.measure("alone", dict.fromkeys(alone, create))
        mixed = {n: create if n in beside else made.create_cloud for n in _spread(beside, of_clouds)}
        found += await made.measure("beside clouds", mixed)
        found += await made.measure("beside more local", dict.fromkeys(_spread(among, more), create))
    return _report(found)


def _spread(few: range, many: range) -> list[int]:
    """The numbers of both, the few spread evenly among the many."""
    step = max(1, len(many) // len(few))
    found = []
    for i, one in enumerate(few):
        found += [one, *many[i * step : (i + 1) * step]]
    return [*found, *many[len(few) * step :]]


def _provider(here: World) -> dict[str, Any]:
    return cloudmanifests.provider_secret(roles.provider_kubeconfig(here.sandbox.folder))


def _report(waited: list[Waited]) -> Report:
    shown = table(
        "Infrastructures created at once",
        waited,
        {
            "phase": lambda one: one.phase,
            "type": lambda one: one.type,
            "count": lambda one: str(one.count),
            "p50 ms": lambda one: f"{one.latency.p50:.0f}",
            "p95 ms": lambda one: f"{one.latency.p95:.0f}",
            "max ms": lambda one: f"{one.latency.max:.0f}",
        },
    )
    return Report(CrowdFigures(waited=waited), [shown])
