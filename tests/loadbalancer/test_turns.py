"""Services that become something else at an awkward moment, on real servers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.loadbalancer.balancerworld import BalancerWorld, address, balancer_world
from tests.natsserver import NatsServer
from tests.rules import rule
from tests.running import eventually
from tests.servers import ControlPlane
from windowbox.errors import Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import SERVICES, ObjectRef
from workers.loadbalancer.pool import Parts
from workers.loadbalancer.qualifying import FINALIZER

PLACE = f"127.79.{os.getpid() % 250}"


@pytest_asyncio.fixture
async def world(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> AsyncIterator[BalancerWorld]:
    """A cluster without nodes, and two addresses to give away."""
    ranges = [{"prefixes": [f"{PLACE}.16/31"]}]
    async with balancer_world(control_plane, nats, tmp_path, "turns", ranges=ranges) as made:
        yield made


async def no_longer_in_use(parts: Parts) -> None:
    """All addresses are only kept."""

    async def kept() -> bool:
        holders = parts.book.holders()
        return bool(holders) and all(holder.until for _, holder in holders)

    await eventually(kept)


@rule("LB-4-flipped", "LB-7-typechange")
async def test_who_leaves_for_another_class_before_anybody_looks_is_let_go(world: BalancerWorld) -> None:
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


async def test_an_address_is_only_kept_even_if_the_run_was_cut_off_on_its_way(
    world: BalancerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.worker() as parts:
        await world.service("web")
        await world.served("web")
        rightly, calls = parts.book.keep, list[ObjectRef]()

        async def keep(ref: ObjectRef, *rest: Any) -> Any:
            calls.append(ref)
            if len(calls) == 1:
                raise Unreachable("the bus is away")
            return await rightly(ref, *rest)

        monkeypatch.setattr(parts.book, "keep", keep)
        await world.merge("web", {"spec": {"type": "ClusterIP"}})
        await no_longer_in_use(parts)
        await world.told("web", "DeletingLoadBalancer")
        await world.told("web", "DeletedLoadBalancer")


async def test_who_waits_and_cannot_be_served_any_more_holds_up_nobody(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await eventually(lambda: settled(parts))
        others = [ObjectRef("elsewhere", SERVICES.id, "ghosts", f"ghost-{number}") for number in range(2)]
        for ghost in others:
            await parts.book.take(ghost, ghost.name, ["IPv4"])
        for name in ("spoiled", "patient"):
            await world.service(name)
            await world.told(name, "SyncLoadBalancerFailed")
        wrong = {"loadbalancer.windowbox/proxy-protocol": "v9"}
        await world.merge("spoiled", {"metadata": {"annotations": wrong}})
        await world.told("spoiled", "InvalidProxyProtocol")
        await parts.book.release(others[0])
        await world.served("patient")


async def settled(parts: Parts) -> bool:
    return parts.book.settled()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(
            {"metadata": {"annotations": {"loadbalancer.windowbox/idle-timeout": "soon"}}},
            "InvalidIdleTimeout",
            id="an-annotation",
        ),
        pytest.param(
            {
                "spec": {
                    "ports": [
                        {"name": "main", "port": 80},
                        {"name": "more", "port": 81, "protocol": "SCTP"},
                    ]
                }
            },
            "SCTPNotSupported",
            id="a-port",
        ),
    ],
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
