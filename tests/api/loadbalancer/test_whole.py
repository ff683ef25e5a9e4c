"""Services from the API to Envoy and back, on real servers; only the node behind is simulated."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bus import streams, subjects
from bus.messages import RunRecord, Wish
from bus.transport.connection import connected
from tests.support import envoyprogram
from tests.support.balancerworld import (
    BalancerWorld,
    address,
    always,
    balancer_world,
    greeting,
    played_node,
    taken_port,
)
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.errors import Refused, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.settings.bussettings import Access
from workers.loadbalancer.envoy.process import Processes
from workers.loadbalancer.ipam import allocator
from workers.loadbalancer.ipam.results import AddressRequest
from workers.loadbalancer.loadbalancerpool import BalancerParts
from workers.loadbalancer.spec.selection import FINALIZER

PLACE = f"127.66.{os.getpid() % 250}"
"""Loopback addresses that no other run of the tests has."""
NODE_NAME = "ip-10-250-0-17.eu-central-1.compute.internal"
"""As a cloud names it."""
LONG = "nginx-ingress-controller-of-the-shop-with-a-longest-name-of-63c"
NODE, NODE_PORT = f"{PLACE}.1", 31066


@pytest_asyncio.fixture
async def world(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> AsyncIterator[BalancerWorld]:
    """A cluster with one simulated node, and three addresses to give away."""
    ranges = [{"prefixes": [f"{PLACE}.17/32", f"{PLACE}.18/31"]}]
    async with (
        balancer_world(control_plane, nats, tmp_path, "balancers", ranges=ranges, quota=100) as made,
        played_node(NODE, NODE_PORT, "hello"),
    ):
        await made.node(NODE_NAME, NODE)
        yield made


@rule("LB-2-order", "LB-3-healthy", "LB-2-finalizer")
async def test_a_service_gets_an_address_that_serves(world: BalancerWorld) -> None:
    async with world.worker():
        await world.service(LONG, node_port=NODE_PORT)
        where = await world.served(LONG)
        assert await greeting(where) == "hello"
        found = await world.until(LONG, lambda one: FINALIZER in one.finalizers)
        assert found.status["loadBalancer"]["ingress"] == [
            {"ip": where, "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP"}]}
        ]
        await world.told(LONG, "EnsuredLoadBalancer")
        reasons = [reason for reason, _ in await world.events(LONG)]
        assert reasons == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]


@rule("LB-2-deletion", "LB-3-deleting", "LB-3-deleted")
async def test_a_deleted_service_leaves_nothing(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await world.service("web", node_port=NODE_PORT)
        where = await world.served("web")
        await world.delete("web")
        await world.gone("web")
        assert await greeting(where) == ""

        async def nobody() -> bool:
            return not parts.store.holders() and not parts.states.known()

        await eventually(nobody)
        await world.told("web", "DeletedLoadBalancer")
        reasons = [reason for reason, _ in await world.events("web")]
        assert reasons[-2:] == ["DeletingLoadBalancer", "DeletedLoadBalancer"]


@rule("LB-4-status")
async def test_a_wiped_status_comes_back(world: BalancerWorld) -> None:
    async with world.worker():
        await world.service("web", node_port=NODE_PORT)
        where = await world.served("web")
        await world.kube.merge(
            SERVICES, world.namespace, "web", {"status": {"loadBalancer": None}}, part="status"
        )
        assert await world.served("web") == where


@rule("LB-4-status")
async def test_conditions_that_others_wrote_are_corrected(world: BalancerWorld) -> None:
    """A lie about the load balancer goes; a condition of somebody else stays."""
    lie = {"type": "LoadBalancerServing", "status": "False", "reason": "Lie", "message": "lie"}
    foreign = {"type": "Foreign", "status": "True", "reason": "Theirs", "message": "stays"}
    at = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    async with world.worker():
        await world.service("web", node_port=NODE_PORT)
        await world.until("web", lambda one: condition(one, "LoadBalancerServing") == "True")
        status = {"conditions": [lie | at, foreign | at]}
        await world.kube.merge(SERVICES, world.namespace, "web", {"status": status}, part="status")
        found = await world.until("web", lambda one: condition(one, "LoadBalancerServing") == "True")
        assert condition(found, "Foreign") == "True"


@rule("LB-2-deletion")
async def test_a_deleted_service_that_others_hold_shows_nothing_of_ours(world: BalancerWorld) -> None:
    """Its address may be another's in a moment."""
    async with world.worker():
        await world.service("web", node_port=NODE_PORT, metadata={"finalizers": ["example.com/hold"]})
        await world.served("web")
        await world.delete("web")
        found = await world.until("web", lambda one: not address(one))
        assert found.finalizers == ("example.com/hold",)
        assert not found.status.get("conditions")
        await world.merge("web", {"metadata": {"finalizers": None}})
        await world.gone("web")


@rule("LB-1-recreated")
async def test_a_service_of_the_same_name_is_another(world: BalancerWorld) -> None:
    async with world.worker():
        first = await world.service("web", node_port=NODE_PORT)
        await world.served("web")
        await world.delete("web")
        await world.gone("web")
        second = await eventually(lambda: created(world, "web"))
        assert second
        assert second.uid != first.uid
        assert await greeting(await world.served("web")) == "hello"


async def test_what_happened_without_a_worker_is_made_up_for(world: BalancerWorld) -> None:
    async with world.worker():
        await world.service("old", node_port=NODE_PORT)
        old = await world.served("old")
    await world.delete("old")
    await world.service("new", node_port=NODE_PORT + 1)
    assert await greeting(old) == "hello", "Envoy serves while all of us are away"
    async with world.worker():
        await world.served("new")
        await world.gone("old")
        assert await greeting(old) == ""


@rule("LB-11-5")
async def test_the_next_free_address_goes_to_who_waits_longest(world: BalancerWorld) -> None:
    async with world.worker():
        for number in range(3):
            await world.service(f"web-{number}")
            await world.served(f"web-{number}")
        await world.service("late")
        said = await world.told("late", "SyncLoadBalancerFailed")
        assert "all 3 IPv4 addresses of its range are in use" in said
        await world.service("later")
        await world.told("later", "SyncLoadBalancerFailed")
        free = await world.served("web-1")
        await world.delete("web-1")
        assert await world.served("late") == free
        later = await world.get("later")
        assert later
        assert not address(later)


async def test_who_waits_gets_an_address_though_nobody_lives_to_wake_it(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await eventually(lambda: settled(parts))
        for number in range(3):
            await allocator.allocate(parts.store, AddressRequest(_ghost(number), f"uid-{number}", ("IPv4",)))
        await world.service("patient")
        await world.told("patient", "SyncLoadBalancerFailed")
        [(address, holder), *_] = parts.store.holders()
        await parts.store.free(address, holder.ref)
        assert await world.served("patient") == address


async def test_who_is_just_told_to_wait_is_woken_all_the_same(
    world: BalancerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.worker() as parts:
        await eventually(lambda: settled(parts))
        for number in range(3):
            await allocator.allocate(parts.store, AddressRequest(_ghost(number), f"uid-{number}", ("IPv4",)))
        ended = _held_at_its_end(parts, monkeypatch)
        await world.service("unlucky")
        await world.told("unlucky", "SyncLoadBalancerFailed")
        [(address, holder), *_] = parts.store.holders()
        await parts.store.free(address, holder.ref)
        await eventually(lambda: _asked_to_look(world, "unlucky"))
        ended.set()
        assert await world.served("unlucky") == address


def _held_at_its_end(parts: BalancerParts, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Runs get no further than what they had to say, until the event is set."""
    go_on, note = asyncio.Event(), parts.pool._journal

    async def held(record: RunRecord) -> None:
        await go_on.wait()
        await note(record)

    monkeypatch.setattr(parts.pool, "_journal", held)
    return go_on


async def _asked_to_look(world: BalancerWorld, name: str) -> bool:
    """Whether a wish stands there that tells of an address."""
    subject = subjects.wish(
        "loadbalancer", subjects.key(ObjectRef(RUNTIME, SERVICES.id, world.namespace, name))
    )
    async with connected(Access(world.nats.url)) as bus:
        found = await bus.last(streams.TRIGGERS, subject)
    return found is not None and Wish.model_validate_json(found.data).reason == "address"


def _ghost(number: int) -> ObjectRef:
    """A Service of a cluster that nobody asks whether it exists."""
    return ObjectRef("elsewhere", SERVICES.id, "ghosts", f"ghost-{number}")


async def test_a_port_in_use_is_reported_and_served_later(world: BalancerWorld) -> None:
    async with world.worker():
        await world.service(
            "web", port=8066, metadata={"annotations": {"loadbalancer.windowbox/address": f"{PLACE}.18"}}
        )
        await world.served("web")
        with taken_port(f"{PLACE}.17", 8066):
            await world.service(
                "clash",
                port=8066,
                metadata={"annotations": {"loadbalancer.windowbox/address": f"{PLACE}.17"}},
            )
            said = await world.told("clash", "SyncLoadBalancerFailed")
            assert f"another process of this host holds port 8066/TCP of {PLACE}.17" in said
        assert await world.served("clash") == f"{PLACE}.17"


async def test_a_successor_of_the_owner_changes_nothing(world: BalancerWorld) -> None:
    async with world.worker():
        await world.service("web", node_port=NODE_PORT)
        where = await world.served("web")
    before = await world.get("web")
    files = {file: os.stat(file).st_mtime_ns for file in (world.folder / "edge").rglob("*.json")}
    async with world.worker() as parts:

        async def settled() -> bool:
            return bool(parts.details["edge"]()["owned"]) and await greeting(where) == "hello"

        await eventually(settled)
        await world.service("more", node_port=NODE_PORT + 1)
        await world.served("more")
    after = await world.get("web")
    assert before
    assert after
    assert after.resource_version == before.resource_version
    bootstraps = {f: at for f, at in files.items() if f.name == "envoy.json"}
    assert bootstraps
    assert all(os.stat(file).st_mtime_ns == at for file, at in bootstraps.items())


@rule("LB-1-resync")
async def test_when_the_bus_forgets_everything_clients_notice_nothing(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await world.service("web", node_port=NODE_PORT)
        where = await world.served("web")
        before = await world.get("web")

        async def serves() -> bool:
            return await greeting(where) == "hello"

        async def forget_and_recover() -> None:
            world.nats.wipe()
            world.nats.start()
            await eventually(lambda: remembered(world, "web"))
            await eventually(lambda: settled(parts))

        await always(serves, forget_and_recover())
        await world.service("more")
        assert await world.served("more") != where
        after = await world.get("web")
        assert before
        assert after
        assert address(after) == where
        assert await serves()


@rule("LB-5-addresses")
async def test_a_node_that_moves_is_followed(world: BalancerWorld) -> None:
    async with world.worker():
        await world.service("web", node_port=NODE_PORT)
        where = await world.served("web")
        async with played_node(f"{PLACE}.2", NODE_PORT, "moved"):
            await world.node(NODE_NAME, f"{PLACE}.2")

            async def moved() -> bool:
                return await greeting(where) == "moved"

            await eventually(moved)


async def remembered(world: BalancerWorld, name: str) -> bool:
    """Whether the bus knows the Service (again)."""
    ref = ObjectRef(RUNTIME, SERVICES.id, world.namespace, name)
    async with connected(Access(world.nats.url)) as bus:
        with contextlib.suppress(WindowboxError):
            return await bus.last(streams.OBJECTS, subjects.seen(ref)) is not None
        return False


async def settled(parts: BalancerParts) -> bool:
    return parts.store.is_complete()


@rule("LB-15-12")
async def test_another_envoy_takes_over_without_a_connection_refused(
    world: BalancerWorld, tmp_path: Path
) -> None:
    async with world.worker():
        await world.service("web", node_port=NODE_PORT)
        where = await world.served("web")
    [before] = await Processes(world.folder / "edge").found("edge")
    newer = envoyprogram.envoy(tmp_path, "newer-envoy")
    world.settings = world.settings.model_copy(update={"envoy": newer})
    heard: list[str] = []

    async def replaced() -> bool:
        heard.append(await greeting(where))
        found = await Processes(world.folder / "edge", program=newer).found("edge")
        return [one.generation for one in found] == [before.generation + 1]

    async with world.worker():
        await eventually(replaced)
        assert await greeting(where) == "hello"
    assert set(heard) == {"hello"}


def condition(service: Object, kind: str) -> str:
    """The status of one of its conditions; empty if it has none of this type."""
    found = service.status.get("conditions") or []
    return next((one["status"] for one in found if one["type"] == kind), "")


async def created(world: BalancerWorld, name: str) -> Object | None:
    """The Service; None while the API server still keeps its node port for the one before."""
    with contextlib.suppress(Refused):
        return await world.service(name, node_port=NODE_PORT)
    return None
