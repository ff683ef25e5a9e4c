"""Shoots with load balancers: served, hibernated, deleted, hanging, or lying about their nodes.

Their API servers are simulated on top of one.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.api.loadbalancer.manyshoots import Addresses, ManyShoots, Shoot, many_shoots
from tests.support import servers
from tests.support.balancerworld import EVENTS, greeting
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.models.refs import CLUSTERS, NODES, SERVICES
from workers.loadbalancer.edge import nodeadmission
from workers.loadbalancer.loadbalancerpool import BalancerParts

COUNT, SIZE = (100, 5) if os.environ.get("LONG") else (9, 2)
"""More Services than a worker has slots."""
PATIENCE = 120.0
"""A single process does all the work here, and simulates the clusters and nodes, too."""
MANY, SOON = 64, 30.0
"""Services, and seconds. In 16 slots, each for 15 s, so many at a cluster that hangs would take 60 s."""


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The real server behind all shoots here: their Namespaces stay in it, by which clusters join."""
    servers.need("etcd", "kube-apiserver")
    with servers.control_plane(tmp_path_factory.mktemp("behind")) as made:
        yield made


@pytest_asyncio.fixture
async def many(
    request: pytest.FixtureRequest,
    behind: ControlPlane,
    nats: NatsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[ManyShoots]:
    """`@pytest.mark.serves(2, 1)`: how many shoots, and how many Services each has."""
    count, size = request.node.get_closest_marker("serves").args
    async with many_shoots(behind, nats, tmp_path, monkeypatch, count, size, ["127.70.0.0/22"]) as made:
        yield made


async def service(many: ManyShoots, shoot: Shoot, *names: str) -> None:
    """Create more Services in the shoot."""
    async with many.api(shoot) as api:
        for name in names:
            spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
            body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
            await api.create(SERVICES, "default", body)


def of(shoot: Shoot, addresses: Addresses) -> Addresses:
    return {place: ip for place, ip in addresses.items() if place[0] == shoot.name}


@pytest.mark.long  # the other tests of LB-11-13 delete the Services of one cluster
@pytest.mark.timeout(900)
@pytest.mark.serves(COUNT, SIZE)
@rule("LB-11-13")
async def test_many_shoots_are_served_and_deleted_cleanly(many: ManyShoots) -> None:
    away, doomed = many.shoots[3], many.shoots[8]
    async with many.world.worker() as parts:
        await asyncio.gather(*(many.create(shoot) for shoot in many.shoots))
        addresses = await many.all_served()
        assert len(set(addresses.values())) == COUNT * SIZE
        assert await _mute(addresses) == []

        many.simulator.cut(away.name)
        await many.delete(doomed)
        await eventually(lambda: _is_free(parts, doomed), PATIENCE)
        await eventually(lambda: _is_silent(addresses, doomed), PATIENCE)
        await eventually(lambda: _is_forgotten(many, doomed), PATIENCE)
        left = {place: ip for place, ip in addresses.items() if place[0] != doomed.name}
        assert await _mute(left) == []

    # Another worker, which has never heard of the shoot that is away except from the bus.
    async with many.world.worker():
        changed = many.shoots[0]
        async with many.api(changed) as api:
            for name in changed.services:
                await api.delete(SERVICES, "default", name)
        await eventually(lambda: _is_silent(addresses, changed), PATIENCE)
        others = {place: ip for place, ip in left.items() if place[0] != changed.name}
        assert await _mute(others) == []
        assert of(away, others)


async def _mute(addresses: Addresses) -> list[str]:
    """Those that do not answer as they should, and what they say."""
    room = asyncio.Semaphore(32)

    async def ask(place: tuple[str, str], ip: str) -> str:
        async with room:
            said = await greeting(ip)
            return "" if said == "/".join(place) else f"{'/'.join(place)} at {ip} says {said!r}"

    asked: list[str] = await asyncio.gather(*(ask(place, ip) for place, ip in addresses.items()))
    return [complaint for complaint in asked if complaint]


async def _is_free(parts: BalancerParts, shoot: Shoot) -> bool:
    """Whether nothing is kept for the shoot: no address, no state of its listeners."""
    held = [where for where, holder in parts.store.holders() if holder.cluster == shoot.name]
    return not held and not [ref for ref in parts.states.known() if ref.cluster == shoot.name]


async def _is_silent(addresses: Addresses, shoot: Shoot) -> bool:
    return not any([await greeting(ip) for ip in of(shoot, addresses).values()])


async def _is_forgotten(many: ManyShoots, shoot: Shoot) -> bool:
    return not await many.said(shoot)


@rule("C-7", "C-10")
@pytest.mark.serves(2, 2)
async def test_a_hibernated_shoot_keeps_its_addresses_and_comes_back(many: ManyShoots) -> None:
    sleeper, other = many.shoots
    async with many.world.worker() as parts:
        for shoot in many.shoots:
            await many.create(shoot)
        before = await many.all_served()
        await _hibernate(many, sleeper, enabled=True)
        many.simulator.cut(sleeper.name)
        own = of(sleeper, before).values()
        await eventually(lambda: _is_silent(before, sleeper))
        async with many.api(other) as api:
            await api.delete(SERVICES, "default", "web-0")
        await service(many, other, "third")

        async def given() -> bool:
            return any(name == "third" for _, name in await many.addresses())

        await eventually(given)
        assert (await many.addresses())[other.name, "third"] not in own
        assert {where for where, one in parts.store.holders() if one.cluster == sleeper.name} >= set(own)
        many.simulator.repair(sleeper.name)
        began = time.monotonic()
        await _hibernate(many, sleeper, enabled=False)

        async def back() -> bool:
            return all([await greeting(ip) for ip in own])

        await eventually(back)
        assert time.monotonic() - began < 10  # a second, on a machine with nothing else to do
        assert of(sleeper, await many.addresses()) == of(sleeper, before)


async def _hibernate(many: ManyShoots, shoot: Shoot, *, enabled: bool) -> None:
    status = {"technicalID": shoot.name, "isHibernated": enabled}
    shown = {"kind": "Shoot", "spec": {"hibernation": {"enabled": enabled}}, "status": status}
    spec = {"cloudProfile": {"kind": "CloudProfile"}, "seed": {"kind": "Seed"}, "shoot": shown}
    head = {"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster"}
    cluster = {**head, "metadata": {"name": shoot.name}, "spec": spec}
    await many.world.kube.apply(CLUSTERS, "", shoot.name, cluster, owner="gardenlet")


@pytest.mark.serves(2, 1)
async def test_a_node_with_a_foreign_address_is_refused(
    many: ManyShoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodeadmission, "_SETTLING", 0.1)
    victim, thief = many.shoots
    async with many.world.worker():
        await many.create(victim)
        await many.create(thief)
        addresses = await many.all_served()
        async with many.api(thief) as api:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stolen"}}
            await api.create(NODES, "", node)
            status = {"addresses": [{"type": "InternalIP", "address": victim.node}]}
            await api.merge(NODES, "", "stolen", {"status": status}, part="status")

            async def reported() -> str:
                events = (await api.page(EVENTS)).items
                return next((e["message"] for e in events if e["reason"] == "NodeAddressRefused"), "")

            said = await eventually(reported)
        taken = f"{victim.node} is the address of another cluster's node already"
        assert said == f"No traffic is sent to node stolen: {taken}"
        for (shoot, name), ip in addresses.items():
            assert await greeting(ip) == f"{shoot}/{name}"


@pytest.mark.long  # servers/bus/test_ranks.py has a cluster hang
@pytest.mark.serves(2, 1)
async def test_services_of_others_are_served_while_a_member_hangs(many: ManyShoots) -> None:
    hanging, other = many.shoots
    async with many.world.worker():
        for shoot in many.shoots:
            await many.create(shoot)
        await many.all_served()
        many.simulator.hang(hanging.name)
        await service(many, hanging, *(f"more-{number}" for number in range(MANY)))
        await service(many, other, *(f"more-{number}" for number in range(4)))

        async def are_served() -> bool:
            return len(of(other, await many.addresses())) == 5

        await eventually(are_served, SOON)
        assert len(of(hanging, await many.addresses())) == 1
