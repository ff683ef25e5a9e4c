"""Services beyond what their cluster may have are told why, and served once there is a place for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.support.balancerworld import balancer_world
from tests.support.natsserver import NatsServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from workers.loadbalancer.ipam import allocator
from workers.loadbalancer.ipam.entries import Waiter
from workers.loadbalancer.ipam.results import AddressRequest

PLACE = f"127.71.{os.getpid() % 250}"


def serving(service: Object) -> dict[str, Any]:
    """The condition that says whether it serves."""
    found = service.status.get("conditions") or []
    return next((one for one in found if one["type"] == "LoadBalancerServing"), {})


async def test_beyond_the_quota_a_service_waits_for_its_neighbour_to_go(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    ranges = [{"prefixes": [f"{PLACE}.16/28"]}]
    async with (
        balancer_world(control_plane, nats, tmp_path, "quota", ranges=ranges, quota=1) as world,
        world.worker(),
    ):
        await world.service("one")
        await world.served("one")
        await world.service("two")
        words = "Services of this cluster have as many IPv4 addresses as a cluster may have (1)"
        assert "set a higher loadbalancer.quota" in await world.complaint("two", words)
        await world.until("two", lambda found: words in serving(found).get("message", ""))
        await world.delete("one")
        await world.served("two")


async def test_beyond_the_bound_a_service_is_refused_until_others_leave(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    ranges = [{"prefixes": [f"{PLACE}.32/31"]}]
    async with (
        balancer_world(control_plane, nats, tmp_path, "bound", ranges=ranges, quota=100) as world,
        world.worker() as parts,
    ):
        store = parts.store

        async def is_complete() -> bool:
            return store.is_complete()

        await eventually(is_complete)
        holding = [ObjectRef("elsewhere", SERVICES.id, "ghosts", f"holds-{number}") for number in range(2)]
        waiting = [ObjectRef(RUNTIME, SERVICES.id, "ghosts", f"waits-{number}") for number in range(100)]
        for ref in holding:
            await allocator.allocate(store, AddressRequest(ref, ref.name, ("IPv4",)))
        for ref in waiting:
            await store.join_queue(ref, Waiter(uid="1", since=1.0, families=("IPv4",)))
        await world.service("late")
        assert await world.complaint("late", "as many Services of this cluster wait as may at once (100)")
        await store.step_back(waiting[0])
        await world.complaint("late", "are in use; others have waited longer")
        for ref in waiting[1:]:
            await store.step_back(ref)
        await store.release(holding[0])
        await world.served("late")
