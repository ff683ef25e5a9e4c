"""Many shoots with five load balancers each. Their API servers are simulated on top of one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.api.loadbalancer.manyshoots import Addresses, ManyShoots, Shoot, lone_shoots
from tests.support.balancerworld import greeting
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.models.refs import SERVICES
from workers.loadbalancer.loadbalancerpool import BalancerParts

COUNT, SIZE = (100 if os.environ.get("LONG") else 30), 5
PATIENCE = 120.0
"""A single process does all the work here, and simulates the clusters and nodes, too."""


@pytest_asyncio.fixture
async def many(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ManyShoots]:
    async with lone_shoots(nats, tmp_path, monkeypatch, COUNT, SIZE, "127.70.0.0/22") as made:
        yield made


@pytest.mark.timeout(900)
@rule("LB-11-13")
async def test_many_shoots_are_served_and_deleted_cleanly(many: ManyShoots) -> None:
    away, doomed = many.shoots[6], many.shoots[21]
    async with many.world.worker() as parts:
        await asyncio.gather(*(many.create(shoot) for shoot in many.shoots))
        addresses = await many.all_served()
        assert len(set(addresses.values())) == COUNT * SIZE
        assert await _mute(addresses) == []

        many.simulator.cut(away.name)
        await many.delete(doomed)
        await eventually(lambda: _is_free(parts, doomed), PATIENCE)
        await eventually(lambda: _is_silent(addresses, doomed.name), PATIENCE)
        await eventually(lambda: _is_forgotten(many, doomed), PATIENCE)
        left = {place: ip for place, ip in addresses.items() if place[0] != doomed.name}
        assert await _mute(left) == []

    # Another worker, which has never heard of the shoot that is away except from the bus.
    async with many.world.worker():
        changed = many.shoots[0]
        async with many.api(changed) as api:
            for name in changed.services:
                await api.delete(SERVICES, "default", name)
        await eventually(lambda: _is_silent(addresses, changed.name), PATIENCE)
        others = {place: ip for place, ip in left.items() if place[0] != changed.name}
        assert await _mute(others) == []
        assert any(place[0] == away.name for place in others)


async def _mute(addresses: Addresses) -> list[str]:
    """Those that do not answer as they should, and what they say."""
    room = asyncio.Semaphore(32)

    async def ask(place: tuple[str, str], ip: str) -> str:
        async with room:
            said = await greeting(ip)
            return "" if said == "/".join(place) else f"{'/'.join(place)} at {ip} says {said!r}"

    asked: Iterable[str] = await asyncio.gather(*(ask(place, ip) for place, ip in addresses.items()))
    return [complaint for complaint in asked if complaint]


async def _is_free(parts: BalancerParts, shoot: Shoot) -> bool:
    """Whether nothing is kept for the shoot: no address, no state of its listeners."""
    held = [where for where, holder in parts.store.holders() if holder.cluster == shoot.name]
    return not held and not [ref for ref in parts.states.known() if ref.cluster == shoot.name]


async def _is_silent(addresses: Addresses, shoot: str) -> bool:
    of_shoot = [ip for place, ip in addresses.items() if place[0] == shoot]
    return not any([await greeting(ip) for ip in of_shoot])


async def _is_forgotten(many: ManyShoots, shoot: Shoot) -> bool:
    return not await many.said(shoot)
