"""Ingresses of Shoots, from the API to the DNSRecords that are made of them."""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from bus import streams, subjects
from bus.messages import Reason, Wish
from bus.transport.connection import Bus, connected
from bus.workqueue.queue import Queue
from tests.support.kindworld import Client, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from tools.bench.audit import without_events, writes
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, INGRESSES, NAMESPACES, RUNTIME, ObjectRef, Resource
from windowbox.settings.bussettings import Access
from workers import replay

pytestmark = [pytest.mark.serves("ingress"), pytest.mark.asyncio(loop_scope="module")]

_EVENTS = Resource("", "v1", "events", "Event")


def spec(*hosts: str) -> dict[str, Any]:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    paths = {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}
    return {"rules": [{"host": host, "http": paths} if host else {"http": paths} for host in hosts]}


async def ingress(shoot: Client, name: str, *hosts: str, at: tuple[str, ...] = ("172.18.255.1",)) -> Object:
    head = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name}}
    made = await shoot.kube.create(INGRESSES, shoot.namespace, {**head, "spec": spec(*hosts)})
    if at:
        await address(shoot, name, *at)
    return made


async def address(shoot: Client, name: str, *at: str) -> None:
    """Have the load balancer of an Ingress stand there: at addresses, or at other names."""
    entries = [{"hostname": one} if one.endswith(".example") else {"ip": one} for one in at]
    await shoot.merge(INGRESSES, name, {"status": {"loadBalancer": {"ingress": entries}}}, part="status")


def digest(host: str) -> str:
    return hashlib.sha256(host.encode()).hexdigest()[:8]


async def records(shoot: Client) -> dict[str, tuple[str, str, list[str]]]:
    """What the DNSRecords of the namespace say, by name."""
    page = await shoot.kube.page(DNSRECORDS, namespace=shoot.namespace)
    found = [Object(raw) for raw in page.items]
    return {
        one.name: (one.spec["recordType"], one.spec["name"], one.spec["values"])
        for one in found
        if not one.deleting
    }


async def until_records(shoot: Client, wanted: dict[str, tuple[str, str, list[str]]]) -> None:
    async def look() -> bool:
        return await records(shoot) == wanted

    with contextlib.suppress(TimeoutError):
        await eventually(look)
    assert await records(shoot) == wanted


async def events(shoot: Client, ingress: Object) -> list[str]:
    """The reasons of the Events of an Ingress."""
    page = await shoot.kube.page(_EVENTS, namespace=shoot.namespace)
    return [one["reason"] for one in page.items if one["involvedObject"].get("uid") == ingress.uid]


async def reconcile(bus: Bus, ingress: Object, reason: Reason = Reason.DRIFT) -> None:
    """Wish for a run of the Ingress."""
    key = subjects.key(ingress.ref(RUNTIME, INGRESSES.id))
    await Queue(bus, "ingress").wish(key, Wish(reason=reason))


async def until_records_are(shoot: Client, number: int) -> None:
    async def look() -> bool:
        return len(await records(shoot)) == number

    await eventually(look)


HOST = "grafana.example.local.gardener.cloud"
NAME = "web-a39b281d"
CONFIRMATION = "confirmation.gardener.cloud/deletion"
MINE = {"name": "mine.test", "recordType": "A", "values": ["10.0.0.9"], "secretRef": {"name": "x"}}


@rule("IG-1", "IG-2", "C.3")
async def test_the_host_of_an_ingress_becomes_a_record(world: KindWorld) -> None:
    shoot = await world.shoot()
    made = await ingress(shoot, "web", HOST)
    found = await shoot.until(DNSRECORDS, NAME, lambda found: found is not None)
    assert found
    record = {"type": "local", "name": HOST, "recordType": "A", "values": ["172.18.255.1"]}
    assert found.spec == {**record, "secretRef": {"name": "provider-local-is-awesome"}}
    assert found.labels == {"origin": "provider-local", "for": "ingress"}
    assert found.annotations == {"confirmation.gardener.cloud/deletion": "true"}
    ingress_web = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "web", "uid": made.uid}
    owner = {**ingress_web, "controller": True, "blockOwnerDeletion": True}
    assert found.metadata["ownerReferences"] == [owner]
    [manager] = found.metadata["managedFields"]
    assert (manager["manager"], manager["operation"]) == ("gardener-extension-provider-local", "Apply")


@rule("IG-1")
async def test_without_an_address_records_stay_unchanged(world: KindWorld) -> None:
    shoot = await world.shoot()
    await ingress(shoot, "web", HOST, "other.test", at=())
    await world.quiet()
    assert await records(shoot) == {}
    await address(shoot, "web", "10.0.0.1")
    both = {NAME: ("A", HOST, ["10.0.0.1"]), f"web-{digest('other.test')}": ("A", "other.test", ["10.0.0.1"])}
    await until_records(shoot, both)
    await address(shoot, "web")
    await world.quiet()
    assert await records(shoot) == both
    await shoot.merge(INGRESSES, "web", {"spec": spec(HOST)})
    await until_records(shoot, {NAME: both[NAME]})


@rule("IG-1")
async def test_only_ingresses_in_namespaces_of_shoots_have_records(world: KindWorld) -> None:
    elsewhere = world.client(f"garden-{uuid.uuid4().hex[:8]}")
    await world.kube.create(NAMESPACES, "", {"metadata": {"name": elsewhere.namespace}})
    await ingress(elsewhere, "web", HOST)
    await world.quiet()
    assert await records(elsewhere) == {}
    labels = {"metadata": {"labels": {"gardener.cloud/role": "shoot"}}}
    await world.kube.merge(NAMESPACES, "", elsewhere.namespace, labels)
    await until_records(elsewhere, {NAME: ("A", HOST, ["172.18.255.1"])})


async def test_a_foreign_record_is_left_alone(world: KindWorld) -> None:
    shoot = await world.shoot()
    mine = await shoot.create(DNSRECORDS, NAME, MINE, operation=None)
    made = await ingress(shoot, "web", HOST, "other.test")
    assert await eventually(lambda: events(shoot, made)) == ["DNSRecordInTheWay"]
    assert await shoot.get(DNSRECORDS, f"web-{digest('other.test')}")
    assert (await shoot.kube.get(DNSRECORDS, shoot.namespace, NAME)).raw == mine.raw
    await shoot.delete(DNSRECORDS, NAME)
    await shoot.until(DNSRECORDS, NAME, lambda found: bool(found and found.spec["name"] == HOST))


async def test_unknown_records_are_read_before_any_write(world: KindWorld) -> None:
    shoot = await world.shoot()
    made = await ingress(shoot, "web", HOST, "other.test", at=())
    other = f"web-{digest('other.test')}"
    mine = await shoot.create(DNSRECORDS, NAME, MINE, operation=None)
    await world.quiet()
    async with connected(Access(world.nats.url)) as bus:
        foreign = subjects.seen(mine.ref(RUNTIME, DNSRECORDS.id))

        await eventually(lambda: bus.last(streams.OBJECTS, foreign))
        await bus.purge(streams.OBJECTS, foreign)
        await address(shoot, "web", "10.0.0.1")
        await shoot.until(DNSRECORDS, other, lambda found: found is not None)
        await world.quiet()
        assert await shoot.get(DNSRECORDS, NAME) is not None
        assert (await records(shoot))[NAME] == ("A", "mine.test", ["10.0.0.9"])
        forgotten = ObjectRef(RUNTIME, DNSRECORDS.id, shoot.namespace, other)
        await bus.purge(streams.OBJECTS, subjects.seen(forgotten))
        audit = world.audit()
        await reconcile(bus, made)
        await world.quiet()
        assert without_events(audit.requests())["patch dnsrecords"] == 0
        await bus.purge(streams.OBJECTS, subjects.seen(made.ref(RUNTIME, INGRESSES.id)))
        await reconcile(bus, made)
        await world.quiet()
        assert other in await records(shoot)


async def test_an_ingress_in_order_causes_no_write(plane: ControlPlane, nats: NatsServer) -> None:
    async with kind_world(plane, nats, "ingress") as world:
        shoot = await world.shoot()
        made = await ingress(shoot, "web", HOST, "*.apps.test", at=("10.0.0.1", "fd00::1"))

        await until_records_are(shoot, 4)
        await world.quiet()
        audit = world.audit()
        async with connected(Access(nats.url)) as bus:
            await reconcile(bus, made, Reason.EVENT)
        await address(shoot, "web", "10.0.0.1", "fd00::1", "10.0.0.2")
        await world.quiet()
        assert writes(without_events(audit.requests())) == 0
    nats.wipe()
    nats.start()
    audit = world.audit()
    async with kind_world(plane, nats, "ingress") as world:

        async def looked_at() -> bool:
            run = subjects.run("ingress", subjects.key(made.ref(RUNTIME, INGRESSES.id)))
            async with connected(Access(nats.url)) as bus:
                return await bus.last(streams.JOURNAL, run) is not None

        await eventually(looked_at)
        await world.quiet()
        assert writes(without_events(audit.requests())) == 0


async def test_records_of_an_ingress_deleted_unseen_are_removed(
    plane: ControlPlane, nats: NatsServer
) -> None:
    async with kind_world(plane, nats, "ingress") as world:
        shoot = await world.shoot()
        await ingress(shoot, "web", HOST)
        await until_records(shoot, {NAME: ("A", HOST, ["172.18.255.1"])})
        await shoot.merge(DNSRECORDS, NAME, {"metadata": {"finalizers": ["test/kept"]}})
        await world.quiet()
    nats.wipe()
    nats.start()
    async with kind_world(plane, nats, "ingress") as world:
        shoot = world.client(shoot.namespace)
        await world.quiet()
        assert NAME in await records(shoot)
        await shoot.delete(INGRESSES, "web")
        found = await shoot.until(DNSRECORDS, NAME, lambda found: bool(found and found.deleting))
        assert found
        await shoot.merge(DNSRECORDS, NAME, {"metadata": {"finalizers": []}})
        await shoot.until_gone(DNSRECORDS, NAME)


async def test_recorded_runs_do_the_same_again(world: KindWorld) -> None:
    began = datetime.now(UTC)
    shoot = await world.shoot()
    await ingress(shoot, "web", HOST, "*.apps.test", at=("10.0.0.1", "fd00::1"))
    await until_records_are(shoot, 4)
    await address(shoot, "web", "10.0.0.2")
    await until_records_are(shoot, 2)
    await shoot.merge(DNSRECORDS, NAME, {"metadata": {"annotations": {CONFIRMATION: None}}})
    await shoot.delete(INGRESSES, "web")
    await until_records(shoot, {})
    await world.quiet()
    recording = await world.recorded(began, "ingress")
    result = await replay.replayed(recording)
    assert result.differences == []
    assert result.replayed >= 3
