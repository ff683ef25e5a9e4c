"""Kinds from the API to their owned objects: the parts of one process of each role, in this process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bus import intents, recordings, streams
from bus.clusters.clusters import Clusters, clusters
from bus.clusters.providers import Providers
from bus.clusters.registry import Registry
from bus.leases.leases import Leases
from bus.messages import Wish
from bus.recordings import Header, Recording
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from bus.workqueue.pool import Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import run_due
from patchers.directwrites import DirectWrites
from patchers.statuspatcher import StatusPatcher
from tests.support import leftovers, loopback
from tests.support.natsserver import NatsServer
from tests.support.running import PATIENCE, running
from tests.support.servers import ControlPlane
from tools.bench.audit import AuditLog
from watchers.watching import Watching
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import WindowboxError
from windowbox.kinds import POOLS
from windowbox.models.extensions import OPERATION, TIMESTAMP
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, NAMESPACES, SECRETS, Resource
from windowbox.settings.bussettings import Access, Deciding, Zone
from windowbox.settings.dnssettings import DnsSettings
from windowbox.settings.kindsettings import KindSettings
from windowbox.settings.settings import WatchSettings, WorkSettings
from workers.core import pools
from workers.core.lifecycle.world import World
from workers.core.owned.targets import TargetClusters
from workers.core.serving import Common, Parts
from workers.kinds.membership.providermembership import ProviderMembership

CLOUDPROVIDER = "cloudprovider"


@dataclass
class KindWorld:
    """The servers, an administrator's view of the cluster, and what a test does to it."""

    plane: ControlPlane
    nats: NatsServer
    kube: Kube
    kinds: KindSettings
    work: WorkSettings
    parts: dict[str, Parts] = field(default_factory=dict)
    zones: tuple[Zone, ...] = ()
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    """What its processes run."""

    def client(self, namespace: str) -> Client:
        return Client(self, namespace)

    async def shoot(self, name: str = "", *, kubeconfig: bytes | None = None, **shoot: Any) -> Client:
        """A Shoot with its namespace, its Cluster and its provider Secret, which leads to this very cluster.

        `shoot` is laid over the Shoot in the Cluster: `spec`, `status`, `metadata`.
        """
        made = self.client(name or f"shoot--t--{uuid.uuid4().hex[:8]}")
        labels = {"gardener.cloud/role": "shoot"} if made.namespace.startswith("shoot-") else {}
        head = {"name": made.namespace, "labels": labels}
        with contextlib.suppress(WindowboxError):
            await self.kube.create(NAMESPACES, "", {"metadata": head})
        await made.cluster(**shoot)
        await made.secret(CLOUDPROVIDER, kubeconfig=self.kubeconfig() if kubeconfig is None else kubeconfig)
        return made

    def kubeconfig(self, role: str = "provider") -> bytes:
        """The kubeconfig of a provider Secret that leads to this cluster."""
        return inline(self.plane.kubeconfigs[role].read_bytes())

    def unreachable(self) -> bytes:
        """The same, with an address that refuses connections."""
        content = yaml.safe_load(self.kubeconfig())
        content["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
        return yaml.safe_dump(content).encode()

    def require_all_at_work(self) -> None:
        """Raise the error of a task that has ended."""
        for task in self.tasks:
            if task.done():
                task.result()
                raise AssertionError(f"{task} has ended")

    def audit(self) -> AuditLog:
        """Requests of windowbox to the API server from now on."""
        log = AuditLog(self.plane.kubeconfig.parent / "audit.log")
        log.skip()
        return log

    async def recorded(self, since: datetime, *pools: str) -> Recording:
        """The runs of these pools since then, with the settings that decided."""
        settings = Deciding(zones=self.zones, classes=self.work.classes, kinds=self.kinds)
        until = datetime.now(UTC) + timedelta(seconds=5)
        header = Header(recording=1, version="now", since=since, until=until, settings=settings)
        async with connected(Access(self.nats.url, name="recorder")) as bus:
            return await recordings.recorded(bus, header, pools)

    async def quiet(self) -> None:
        """Wait until every wish has been reconciled."""
        async with asyncio.timeout(PATIENCE), connected(Access(self.nats.url, name="quiet")) as bus:
            calm = 0
            while calm < 3:
                busy = False
                for stream in (streams.TRIGGERS, streams.WORK):
                    info = await bus.api(f"STREAM.INFO.{stream}")
                    busy = busy or info["state"]["messages"] > 0
                calm = 0 if busy else calm + 1
                await asyncio.sleep(0.05)  # a stream sends no event when it is empty


@dataclass(frozen=True)
class Client:
    """A client like gardenlet, at work in one namespace."""

    world: KindWorld
    namespace: str

    @property
    def kube(self) -> Kube:
        return self.world.kube

    async def cluster(self, **shoot: Any) -> None:
        """Create or update the namespace's Cluster with this Shoot."""
        networking = {
            "type": "calico",
            "ipFamilies": ["IPv4"],
            "nodes": "10.0.0.0/16",
            "pods": "10.3.0.0/16",
            "services": "10.4.0.0/16",
        }
        spec = {"credentialsBindingName": "local", "networking": networking} | shoot.pop("spec", {})
        status = {"technicalID": self.namespace} | shoot.pop("status", {})
        about = {"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot", "spec": spec, "status": status}
        cloud_profile = shoot.pop("cloudProfile", {})
        body = {
            "apiVersion": "extensions.gardener.cloud/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": self.namespace},
            "spec": {
                # Never empty: the API server turns a mapping that an apply empties into null.
                "cloudProfile": {"kind": "CloudProfile"} | cloud_profile,
                "seed": {"kind": "Seed"},
                "shoot": about | shoot,
            },
        }
        await self.kube.apply(CLUSTERS, "", self.namespace, body, owner="gardenlet")

    async def namespace_exists(self) -> None:
        """Create the namespace, unless it is there."""
        with contextlib.suppress(WindowboxError):
            await self.kube.create(NAMESPACES, "", {"metadata": {"name": self.namespace}})

    async def secret(self, name: str, **data: bytes) -> None:
        """A Secret with this data, and no other."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": self.namespace},
            "data": encoded,
        }
        await self.kube.apply(SECRETS, self.namespace, name, body, owner="gardenlet")

    async def create(
        self,
        resource: Resource,
        name: str,
        spec: Mapping[str, Any],
        *,
        operation: str | None = "reconcile",
        **metadata: Any,
    ) -> Object:
        """Create an object, with or without an operation annotation."""
        asked = {OPERATION: operation, TIMESTAMP: stamp()} if operation else {}
        metadata["annotations"] = asked | metadata.get("annotations", {})
        body = {
            "apiVersion": f"{resource.group}/{resource.version}",
            "kind": resource.kind,
            "metadata": {"name": name, **metadata},
            "spec": {"type": "local", **spec},
        }
        return await self.kube.create(resource, self.namespace if resource.namespaced else "", body)

    async def ask(self, resource: Resource, name: str, operation: str = "reconcile", **patch: Any) -> None:
        """Set the operation annotation as gardenlet does, and change the spec if one is given."""
        annotations = {OPERATION: operation, TIMESTAMP: stamp()}
        await self.merge(resource, name, {"metadata": {"annotations": annotations}, **patch})

    async def merge(self, resource: Resource, name: str, patch: dict[str, Any], *, part: str = "") -> None:
        await self.kube.merge(resource, self._where(resource), name, patch, part=part)

    async def delete(self, resource: Resource, name: str) -> None:
        await self.kube.delete(resource, self._where(resource), name)

    async def get(self, resource: Resource, name: str) -> Object | None:
        return await self.kube.find(resource, self._where(resource), name)

    async def until(
        self,
        resource: Resource,
        name: str,
        holds: Callable[[Object | None], bool],
        patience: float = PATIENCE,
    ) -> Object | None:
        """The object (None if it does not exist), once it meets this condition."""
        async with asyncio.timeout(patience):
            async for found in _versions(self.kube, resource, self._where(resource), name):
                if holds(found):
                    return found
        raise AssertionError("a watch does not end")

    async def until_ready(self, resource: Resource, name: str) -> Object:
        found = await self.until(resource, name, ready)
        assert found
        return found

    async def until_gone(self, resource: Resource, name: str) -> None:
        await self.until(resource, name, lambda found: found is None)

    async def until_failed(self, resource: Resource, name: str) -> Object:
        found = await self.until(resource, name, failed)
        assert found
        return found

    def _where(self, resource: Resource) -> str:
        return self.namespace if resource.namespaced else ""


async def _versions(api: Kube, resource: Resource, namespace: str, name: str) -> AsyncIterator[Object | None]:
    """The current object, then each later version."""
    everyone = resource._replace(selector="")
    while True:
        page = await api.page(everyone, limit=5000)
        mine = (Object(raw) for raw in page.items)
        found = next((one for one in mine if (one.namespace, one.name) == (namespace, name)), None)
        yield found
        with contextlib.suppress(WindowboxError):
            async for events in api.watch(everyone, page.resource_version, only=name):
                for event in events:
                    seen = Object(event.object)
                    if event.type != "BOOKMARK" and seen.namespace == namespace:
                        yield None if event.type == "DELETED" else seen


def ready(object: Object | None) -> bool:
    """The condition that gardenlet waits for."""
    if object is None or object.status.get("lastError") or OPERATION in object.annotations:
        return False
    asked, last = object.annotations.get(TIMESTAMP), object.last_operation
    return (
        object.status.get("observedGeneration") == object.generation
        and last.get("state") == "Succeeded"
        and (not asked or asked[:19] <= str(last.get("lastUpdateTime")))
    )


def failed(object: Object | None) -> bool:
    return object is not None and object.last_operation.get("state") == "Error"


def stamp() -> str:
    """Now, as gardenlet spells it, with nanoseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "789Z"


def inline(kubeconfig: bytes) -> bytes:
    """A kubeconfig with the content of the files that it names."""
    content = yaml.safe_load(kubeconfig)
    sections = [entry["cluster"] for entry in content["clusters"]]
    sections += [entry["user"] for entry in content["users"]]
    for section in sections:
        for key in ("certificate-authority", "client-certificate", "client-key"):
            if key in section:
                with open(section.pop(key), "rb") as file:
                    section[f"{key}-data"] = base64.b64encode(file.read()).decode()
    return yaml.safe_dump(content).encode()


@contextlib.asynccontextmanager
async def kind_world(
    plane: ControlPlane, nats: NatsServer, *served: str, kinds: KindSettings | None = None, **work: Any
) -> AsyncIterator[KindWorld]:
    """A world in which workers serve these pools; `work` are settings of theirs, such as classes."""
    settings = WorkSettings(concurrency=16, ack_wait=4.0, sweep_interval=1.0, **work)
    leftovers.expect(plane, *(POOLS[name].resource for name in served))
    async with kube.from_file(plane.kubeconfig) as api:
        world = KindWorld(plane, nats, api, kinds or KindSettings(), settings)
        async with world_of(world, "watcher", _watching), world_of(world, "patcher", _patching):

            async def working(bus: Bus, opened: Clusters, registry: Registry) -> list[Any]:
                return await _working(world, bus, opened, registry, served)

            async with world_of(world, "worker", working):
                yield world
                await require_notes(nats)


async def require_notes(nats: NatsServer) -> None:
    """Require that every scheduled wish has a note, which `windowbox trace` shows."""
    async with connected(Access(nats.url, name="test")) as bus:
        scheduled = consumers.snapshot(bus, streams.LATER, ["later.>"])
        assert [one.subject async for one in scheduled if not Wish.decoded(one.data).note] == []


class Seeds(NamedTuple):
    """Two seeds, each with an API server and a bus of its own."""

    source: KindWorld
    destination: KindWorld


@contextlib.asynccontextmanager
async def two_seeds(
    plane: ControlPlane, other: ControlPlane, nats: NatsServer, folder: Path, *served: str
) -> AsyncIterator[Seeds]:
    """Seeds in which workers serve these pools."""
    other_nats = NatsServer(folder / "other-nats")
    other_nats.start()
    try:
        async with (
            kind_world(plane, nats, *served) as source,
            kind_world(other, other_nats, *served) as destination,
        ):
            yield Seeds(source, destination)
    finally:
        other_nats.stop()


@contextlib.asynccontextmanager
async def world_of(world: KindWorld, role: str, assembled: Callable[..., Any]) -> AsyncIterator[None]:
    """A process of a role: its connection, its rights, and what it runs."""
    async with (
        connected(Access(world.nats.url, name=role)) as bus,
        kube.from_file(world.plane.kubeconfigs[role]) as runtime,
    ):
        await streams.ensure(bus)
        registry = Registry(bus)
        async with (
            clusters(runtime, registry, loopback.SETTINGS) as opened,
            running(registry.run(), *await assembled(bus, opened, registry)) as tasks,
        ):
            world.tasks += tasks
            yield


async def _watching(bus: Bus, opened: Clusters, registry: Registry) -> list[Any]:
    leases = Leases(bus, f"watcher {id(bus)}", "watch")
    watching = Watching(bus, leases, opened, registry, WatchSettings().kinds)
    return [leases.run(), watching.run()]


async def _patching(bus: Bus, opened: Clusters, registry: Registry) -> list[Any]:
    patch = Pool(bus, intents.PATCH, StatusPatcher(bus, opened), ack_wait=4.0)
    return [patch.run(), DirectWrites(bus, opened).run(), run_due(bus, Queue(bus, intents.PATCH))]


async def _working(
    world: KindWorld, bus: Bus, opened: Clusters, registry: Registry, served: tuple[str, ...]
) -> list[Any]:
    leases = Leases(bus, f"worker {id(bus)}", "work")
    providers = Providers(opened, registry)
    targets = TargetClusters(opened, providers)
    always = world.kinds.clouds.provider_secrets
    keeping = ProviderMembership(bus, registry, providers, world.work.sweep_interval, always=always)
    common = common_of(world, bus, opened, registry, targets)
    running: list[Any] = [leases.run(), common.world.run(), _closing(providers)]
    running.append(leases.while_held("providers", keeping.run))
    for name in served:
        parts = await pools.assembled(common, name)
        assert parts, name
        world.parts[name] = parts
        running += [parts.pool.run(), parts.router.run(), *(task() for task in parts.tasks.values())]
        running.append(_sweeping(leases, name, parts, world.work.sweep_interval))
    return running


def common_of(
    world: KindWorld, bus: Bus, opened: Clusters, registry: Registry, targets: TargetClusters
) -> Common:
    """The parts that the pools of a worker share, without zones and load balancers."""
    return Common(
        bus=bus,
        clusters=opened,
        registry=registry,
        world=World(bus, opened),
        targets=targets,
        nameserver=Nameserver(DnsSettings(zones=[])),
        closing=contextlib.AsyncExitStack(),
        work=world.work,
        kinds=world.kinds,
    )


async def _closing(providers: Providers) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await providers.aclose()


async def _sweeping(leases: Leases, name: str, parts: Parts, interval: float) -> None:
    await leases.while_held(f"sweep.{name}", lambda: parts.router.sweep(interval))
