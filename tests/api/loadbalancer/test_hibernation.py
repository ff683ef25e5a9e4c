"""A Shoot that is hibernated takes no part, keeps its addresses, and is back as soon as it is woken up."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.api.loadbalancer.manyshoots import ManyShoots, Shoot, lone_shoots
from tests.support.balancerworld import greeting
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.models.refs import CLUSTERS, SERVICES


@pytest_asyncio.fixture
async def many(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ManyShoots]:
    async with lone_shoots(nats, tmp_path, monkeypatch, 2, 2, "127.70.8.0/29") as made:
        yield made


@rule("C-7", "C-10")
async def test_a_hibernated_shoot_keeps_its_addresses_and_comes_back(many: ManyShoots) -> None:
    sleeper, other = many.shoots
    async with many.world.worker() as parts:
        for shoot in many.shoots:
            await many.create(shoot)
        before = await many.all_served()
        await _hibernate(many, sleeper, enabled=True)
        many.simulator.cut(sleeper.name)
        own = [ip for (shoot, _), ip in before.items() if shoot == sleeper.name]

        async def silent() -> bool:
            return not any([await greeting(ip) for ip in own])

        await eventually(silent)
        async with many.api(other) as api:
            await api.delete(SERVICES, "default", "web-0")
            spec = {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": other.services["web-1"] + 9}]}
            await api.create(SERVICES, "default", {"metadata": {"name": "third"}, "spec": spec})

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
        after = await many.addresses()
        assert {place: ip for place, ip in after.items() if place[0] == sleeper.name} == {
            place: ip for place, ip in before.items() if place[0] == sleeper.name
        }


async def _hibernate(many: ManyShoots, shoot: Shoot, *, enabled: bool) -> None:
    spec = {"hibernation": {"enabled": enabled}}
    status = {"technicalID": shoot.name, "isHibernated": enabled}
    cluster = {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": shoot.name},
        "spec": {
            "cloudProfile": {"kind": "CloudProfile"},
            "seed": {"kind": "Seed"},
            "shoot": {"kind": "Shoot", "spec": spec, "status": status},
        },
    }
    await many.world.kube.apply(CLUSTERS, "", shoot.name, cluster, owner="gardenlet")
