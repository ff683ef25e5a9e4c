"""Ingresses of Shoots, from the API to what a name server answers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.api.ingress.test_ingress import address, digest, ingress, spec
from tests.e2e import zones
from tests.support.auditlog import writes_in
from tests.support.dnsworld import dns_world
from tests.support.kindworld import KindWorld
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane, NameServer
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, INGRESSES

APPS = "*.apps.local.gardener.cloud"


@pytest.fixture
def host() -> str:
    """A host that no other test has a record for."""
    return f"{uuid.uuid4().hex[:8]}.local.gardener.cloud"


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer, named: NameServer) -> AsyncIterator[KindWorld]:
    async with dns_world(plane, nats, named, "ingress") as made:
        yield made


async def until_answers(named: NameServer, name: str, values: list[str], record_type: str = "A") -> None:
    async def look() -> bool:
        return await asyncio.to_thread(zones.answers, named, name, record_type) == values

    await eventually(look)


@rule("IG-1", "IG-2", "IG-3")
async def test_names_resolve_for_as_long_as_rules_name_them(
    world: KindWorld, named: NameServer, host: str
) -> None:
    shoot = await world.shoot()
    await ingress(shoot, "web", host, APPS, at=("10.0.0.1", "fd00::1"))
    app = APPS.replace("*", "any")
    for name in (host, app):
        await until_answers(named, name, ["10.0.0.1"])
        await until_answers(named, name, ["fd00::1"], "AAAA")
    await address(shoot, "web", "10.0.0.2", "fd00::1")
    await until_answers(named, host, ["10.0.0.2"])
    await until_answers(named, app, ["10.0.0.2"])
    await address(shoot, "web", "lb.example")
    await until_answers(named, host, ["lb.example."], "CNAME")
    await shoot.until_ready(DNSRECORDS, f"web-{digest(host)}")
    await address(shoot, "web", "10.0.0.3", "fd00::3")
    await until_answers(named, host, ["10.0.0.3"])
    await until_answers(named, host, ["fd00::3"], "AAAA")
    await shoot.merge(INGRESSES, "web", {"spec": spec(APPS)})
    await until_answers(named, host, [])
    await shoot.delete(INGRESSES, "web")
    await until_answers(named, app, [])
    await until_answers(named, app, [], "AAAA")
    for one in (host, APPS):
        await shoot.until_gone(DNSRECORDS, f"web-{digest(one)}")
        await shoot.until_gone(DNSRECORDS, f"web-{digest(one)}-ipv6")


@rule("T-4")
async def test_an_edited_record_is_corrected_on_the_name_server(
    world: KindWorld, named: NameServer, host: str
) -> None:
    shoot = await world.shoot()
    await ingress(shoot, "web", host, at=("10.0.0.1",))
    await shoot.until_ready(DNSRECORDS, f"web-{digest(host)}")
    await world.quiet()
    annotations = {"gardener.cloud/operation": "reconcile"}
    edited = {"spec": {"values": ["10.6.6.6"]}, "metadata": {"annotations": annotations}}
    await shoot.merge(DNSRECORDS, f"web-{digest(host)}", edited)

    def right(one: Object | None) -> bool:
        done = one is not None and one.status["observedGeneration"] == one.generation
        return done and one is not None and one.spec["values"] == ["10.0.0.1"]

    await shoot.until(DNSRECORDS, f"web-{digest(host)}", right)
    await until_answers(named, host, ["10.0.0.1"])


async def test_a_changed_record_is_asked_about_once(world: KindWorld, named: NameServer, host: str) -> None:
    shoot = await world.shoot()
    await ingress(shoot, "web", host, at=("10.0.0.1",))
    await shoot.until_ready(DNSRECORDS, f"web-{digest(host)}")
    await world.quiet()
    before = len(writes_in(world, shoot.namespace))
    await address(shoot, "web", "10.0.0.2")
    await until_answers(named, host, ["10.0.0.2"])
    found = await shoot.until_ready(DNSRECORDS, f"web-{digest(host)}")
    await world.quiet()
    assert found.generation == found.status["observedGeneration"] == 2
    writes = writes_in(world, shoot.namespace)[before:]
    assert writes == ["patch dnsrecords worker", "patch dnsrecords worker", "patch dnsrecords/status patcher"]
