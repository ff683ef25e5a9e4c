"""Services that become something else at an awkward moment, on real servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.balancerworld import BalancerWorld, address, balancer_world, greeting, played_node
from tests.support.cases import cases
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.errors import Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import SERVICES, ObjectRef
from workers.loadbalancer.ipam import allocator
from workers.loadbalancer.ipam.results import AddressRequest
from workers.loadbalancer.loadbalancerpool import BalancerParts
from workers.loadbalancer.spec.selection import FINALIZER

PLACE = f"127.79.{os.getpid() % 250}"


@pytest_asyncio.fixture
async def world(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> AsyncIterator[BalancerWorld]:
    """A cluster without nodes, and two addresses to give away."""
    ranges = [{"prefixes": [f"{PLACE}.16/31"]}]
    async with balancer_world(control_plane, nats, tmp_path, "turns", ranges=ranges, quota=100) as made:
        yield made


async def no_longer_in_use(parts: BalancerParts) -> None:
    """All addresses are only kept."""

    async def kept() -> bool:
        holders = parts.store.holders()
        return bool(holders) and all(holder.until for _, holder in holders)

    await eventually(kept)


@rule("LB-4-flipped", "LB-7-typechange")
async def test_a_service_that_changes_class_early_is_released(world: BalancerWorld) -> None:
    async with world.worker():
        await world.service("fickle")
        await world.served("fickle")
    await world.merge("fickle", {"spec": {"type": "ClusterIP"}})
    await world.merge("fickle", {"spec": {"type": "LoadBalancer", "loadBalancerClass": "foreign/one"}})
    theirs = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    await world.kube.merge(SERVICES, world.namespace, "fickle", {"status": theirs}, part="status")
    async with world.worker() as parts:
        found = await world.until("fickle", lambda one: FINALIZER not in one.finalizers)
        await no_longer_in_use(parts)
        await world.told("fickle", "DeletedLoadBalancer")
        found = await world.until("fickle", lambda one: not one.status.get("conditions"))
        assert address(found) == "192.0.2.1"


async def test_an_interrupted_run_keeps_the_allocated_address(
    world: BalancerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.worker() as parts:
        await world.service("web")
        await world.served("web")
        rightly, calls = parts.store.keep, list[ObjectRef]()

        async def keep(ref: ObjectRef, *rest: Any) -> Any:
            calls.append(ref)
            if len(calls) == 1:
                raise Unreachable("the bus is away")
            return await rightly(ref, *rest)

        monkeypatch.setattr(parts.store, "keep", keep)
        await world.merge("web", {"spec": {"type": "ClusterIP"}})
        await no_longer_in_use(parts)
        await world.told("web", "DeletingLoadBalancer")
        await world.told("web", "DeletedLoadBalancer")


async def test_a_service_deleted_in_the_time_of_grace_gives_its_address_back(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await world.service("fickle")
        await world.served("fickle")
        await world.merge("fickle", {"spec": {"type": "NodePort"}})
        await no_longer_in_use(parts)
        await world.until("fickle", lambda found: FINALIZER not in found.metadata.get("finalizers", []))
        await world.delete("fickle")

        async def free() -> bool:
            return not parts.store.holders()

        await eventually(free)


async def test_who_waits_and_cannot_be_served_any_more_holds_up_nobody(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await eventually(lambda: settled(parts))
        others = [ObjectRef("elsewhere", SERVICES.id, "ghosts", f"ghost-{number}") for number in range(2)]
        for ghost in others:
            await allocator.allocate(parts.store, AddressRequest(ghost, ghost.name, ("IPv4",)))
        for name in ("spoiled", "patient"):
            await world.service(name)
            await world.told(name, "SyncLoadBalancerFailed")
        wrong = {"loadbalancer.windowbox/proxy-protocol": "v9"}
        await world.merge("spoiled", {"metadata": {"annotations": wrong}})
        await world.told("spoiled", "InvalidProxyProtocol")
        await parts.store.release(others[0])
        await world.served("patient")


async def settled(parts: BalancerParts) -> bool:
    return parts.store.is_complete()


@cases(
    "change reason",
    (
        "an-annotation",
        {"metadata": {"annotations": {"loadbalancer.windowbox/idle-timeout": "soon"}}},
        "InvalidIdleTimeout",
    ),
    (
        "a-port",
        {"spec": {"ports": [{"name": "main", "port": 80}, {"name": "more", "port": 81, "protocol": "SCTP"}]}},
        "SCTPNotSupported",
    ),
)
async def test_what_is_refused_of_a_service_that_serves_is_told(
    world: BalancerWorld, change: dict[str, Any], reason: str
) -> None:
    async with world.worker():
        await world.service("web")
        where = await world.served("web")
        await world.told("web", "EnsuredLoadBalancer")
        await world.merge("web", change)
        await world.told("web", reason)
        await world.until("web", lambda one: degraded(one))
        assert await world.served("web") == where


def degraded(service: Object) -> bool:
    return any(one["type"] == "LoadBalancerDegraded" for one in service.status.get("conditions", ()))


async def test_a_shared_address_refuses_a_port_in_use(world: BalancerWorld) -> None:
    shared = {"annotations": {"loadbalancer.windowbox/share": "word"}}
    async with played_node(f"{PLACE}.1", 31079, "hello"), world.worker():
        await world.node("one", f"{PLACE}.1")
        await world.service("settled", port=81, node_port=31079, metadata=shared)
        where = await world.served("settled")
        await world.service("greedy", metadata=shared)
        assert await world.served("greedy") == where
        ports = [{"name": "main", "port": 80}, {"name": "more", "port": 81}, {"name": "own", "port": 82}]
        await world.merge("greedy", {"spec": {"ports": ports}})
        assert "port 81/TCP of" in await world.told("greedy", "SyncLoadBalancerFailed")

        async def has_its_own() -> bool:
            return await listens(where, 82)

        await eventually(has_its_own)
        assert await greeting(where, 81) == "hello"
        await world.delete("settled")
        shown = await world.until("greedy", lambda one: len(targets(one)) == 3)
        assert targets(shown) == [80, 81, 82]


async def listens(where: str, port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError):
        _, writer = await asyncio.open_connection(where, port)
        writer.close()
        return True
    return False


def targets(service: Object) -> list[int]:
    """The ports that its status shows."""
    [shown] = service.status["loadBalancer"]["ingress"]
    return [port["port"] for port in shown["ports"]]
