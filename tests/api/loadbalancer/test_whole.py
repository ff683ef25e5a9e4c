"""Services from the API to Envoy and back, on real servers; only the node behind is simulated."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from bus import streams, subjects
from bus.messages import Wish
from bus.transport.connection import Bus, connected
from tests.api.loadbalancer.conftest import NODE_NAME, NODE_PORT, PLACE
from tests.support import envoyprogram
from tests.support.balancerworld import (
    BalancerWorld,
    address,
    always,
    complete,
    condition,
    greeting,
    played_node,
)
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.errors import Refused, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.settings.bussettings import Access
from workers.loadbalancer.envoy.process import Processes
from workers.loadbalancer.ipam import allocator
from workers.loadbalancer.ipam.results import AddressRequest
from workers.loadbalancer.loadbalancerpool import BalancerParts
from workers.loadbalancer.spec.selection import FINALIZER

pytestmark = pytest.mark.serves("17/32", "18/31", quota=100)

LONG = "nginx-ingress-controller-of-the-shop-with-a-longest-name-of-63c"


def serving(service: Object) -> bool:
    return condition(service, "LoadBalancerServing").get("status") == "True"


@rule("LB-2-order", "LB-3-healthy", "LB-2-finalizer")
async def test_a_service_gets_an_address_that_serves(world: BalancerWorld) -> None:
    async with world.worker():
        where = await world.serve(LONG, node_port=NODE_PORT)
        assert await greeting(where) == "hello"
        found = await world.until(LONG, lambda one: FINALIZER in one.finalizers)
        assert found.status["loadBalancer"]["ingress"] == [
            {"ip": where, "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP"}]}
        ]
        await world.reported(LONG, "EnsuredLoadBalancer")
        assert await world.reasons(LONG) == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]


@rule("LB-2-deletion", "LB-3-deleting", "LB-3-deleted")
async def test_a_deleted_service_leaves_nothing(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        where = await world.serve("web", node_port=NODE_PORT)
        await world.delete("web")
        await world.gone("web")
        assert await greeting(where) == ""
        await eventually(lambda: not parts.store.holders() and not parts.states.known())
        await world.reported("web", "DeletedLoadBalancer")
        assert (await world.reasons("web"))[-2:] == ["DeletingLoadBalancer", "DeletedLoadBalancer"]


@rule("LB-4-status")
async def test_a_wiped_status_comes_back(world: BalancerWorld) -> None:
    async with world.worker():
        where = await world.serve("web", node_port=NODE_PORT)
        await world.merge("web", {"status": {"loadBalancer": None}}, part="status")
        assert await world.served("web") == where


@pytest.mark.long  # test_a_wiped_status_comes_back has all of it written again
@rule("LB-4-status")
async def test_conditions_that_others_wrote_are_corrected(world: BalancerWorld) -> None:
    """A lie about the load balancer goes; a condition of somebody else stays."""
    lie = {"type": "LoadBalancerServing", "status": "False", "reason": "Lie", "message": "lie"}
    foreign = {"type": "Foreign", "status": "True", "reason": "Theirs", "message": "stays"}
    at = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    async with world.worker():
        await world.service("web", node_port=NODE_PORT)
        await world.until("web", lambda one: serving(one))
        status = {"conditions": [lie | at, foreign | at]}
        await world.merge("web", {"status": status}, part="status")
        found = await world.until("web", lambda one: serving(one))
        assert condition(found, "Foreign")["status"] == "True"


@rule("LB-2-deletion")
async def test_a_deleted_service_that_others_hold_shows_nothing_of_ours(world: BalancerWorld) -> None:
    """Its address may be another's in a moment."""
    async with world.worker():
        await world.serve("web", node_port=NODE_PORT, metadata={"finalizers": ["example.com/hold"]})
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
        old = await world.serve("old", node_port=NODE_PORT)
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
            await world.serve(f"web-{number}")
        await world.service("late")
        said = await world.reported("late", "SyncLoadBalancerFailed")
        assert "all 3 IPv4 addresses of its range are in use" in said
        await world.service("later")
        await world.reported("later", "SyncLoadBalancerFailed")
        free = await world.served("web-1")
        await world.delete("web-1")
        assert await world.served("late") == free
        later = await world.get("later")
        assert later
        assert not address(later)


@pytest.mark.long  # servers/ipam/test_queue_for_addresses.py says who is woken, and whose turn it is
async def test_a_waiting_service_is_served_without_a_wake(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await _give_all_away(parts)
        await world.service("patient")
        await world.reported("patient", "SyncLoadBalancerFailed")
        [(address, holder), *_] = parts.store.holders()
        await parts.store.free(address, holder.ref)
        assert await world.served("patient") == address


@pytest.mark.long  # servers/ipam/test_queue_for_addresses.py says who is woken, and whose turn it is
async def test_a_service_just_queued_is_still_woken(
    world: BalancerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.worker() as parts:
        await _give_all_away(parts)
        ended = _held_at_its_end(monkeypatch)
        await world.service("unlucky")
        await world.reported("unlucky", "SyncLoadBalancerFailed")
        [(address, holder), *_] = parts.store.holders()
        await parts.store.free(address, holder.ref)
        await eventually(lambda: _asked_to_look(world, "unlucky"))
        ended.set()
        assert await world.served("unlucky") == address


def _held_at_its_end(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Runs get no further than their record in the journal, until the event is set."""
    go_on, publish = asyncio.Event(), Bus.publish

    async def held(bus: Bus, subject: str, *rest: Any, **more: Any) -> Any:
        if subject.startswith("run.loadbalancer."):
            await go_on.wait()
        return await publish(bus, subject, *rest, **more)

    monkeypatch.setattr(Bus, "publish", held)
    return go_on


async def _asked_to_look(world: BalancerWorld, name: str) -> bool:
    """Whether a wish stands there that tells of an address."""
    key = subjects.key(ObjectRef(RUNTIME, SERVICES.id, world.namespace, name))
    async with connected(Access(world.nats.url)) as bus:
        found = await bus.last(streams.TRIGGERS, subjects.wish("loadbalancer", key))
    return found is not None and Wish.model_validate_json(found.data).reason == "address"


async def _give_all_away(parts: BalancerParts) -> None:
    """Allocate all addresses to Services of a cluster that nobody asks whether they exist."""
    await complete(parts)
    for number in range(3):
        ghost = ObjectRef("elsewhere", SERVICES.id, "ghosts", f"ghost-{number}")
        await allocator.allocate(parts.store, AddressRequest(ghost, f"uid-{number}", ("IPv4",)))


async def test_a_successor_of_the_owner_changes_nothing(world: BalancerWorld) -> None:
    async with world.worker():
        where = await world.serve("web", node_port=NODE_PORT)
    before = await world.get("web")
    files = {file: os.stat(file).st_mtime_ns for file in (world.folder / "edge").rglob("*.json")}
    async with world.worker() as parts:

        async def settled() -> bool:
            return bool(parts.details["edge"]()["owned"]) and await greeting(where) == "hello"

        await eventually(settled)
        await world.serve("more", node_port=NODE_PORT + 1)
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
        where = await world.serve("web", node_port=NODE_PORT)
        before = await world.get("web")

        async def serves() -> bool:
            return await greeting(where) == "hello"

        async def forget_and_recover() -> None:
            world.nats.wipe()
            world.nats.start()
            await eventually(lambda: remembered(world, "web"))
            await complete(parts)

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
        where = await world.serve("web", node_port=NODE_PORT)
        async with played_node(f"{PLACE}.2", {NODE_PORT: "moved"}):
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


@pytest.mark.long  # servers/envoy/test_keeping.py replaces one
@rule("LB-15-12")
async def test_another_envoy_takes_over_and_refuses_nothing(world: BalancerWorld, tmp_path: Path) -> None:
    async with world.worker():
        where = await world.serve("web", node_port=NODE_PORT)
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


async def created(world: BalancerWorld, name: str) -> Object | None:
    """The Service; None while the API server still keeps its node port for the one before."""
    with contextlib.suppress(Refused):
        return await world.service(name, node_port=NODE_PORT)
    return None
