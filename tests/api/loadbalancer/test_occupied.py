"""Ports that other processes of the host hold, on addresses that windowbox has chosen itself."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.balancerworld import BalancerWorld, balancer_world, taken_port
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane
from workers.loadbalancer.edgestate import MOST_OCCUPIED

PLACE = f"127.67.{os.getpid() % 250}"
FIRST, SECOND, THIRD = (f"{PLACE}.{number}" for number in (17, 18, 19))
PORT = 8067


@pytest_asyncio.fixture
async def world(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> AsyncIterator[BalancerWorld]:
    """A cluster without nodes, and three addresses to give away."""
    ranges = [{"prefixes": [f"{FIRST}/32", f"{SECOND}/31"]}]
    async with balancer_world(control_plane, nats, tmp_path, "occupied", ranges=ranges) as made:
        yield made


async def test_another_address_is_chosen_where_a_port_is_held(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        with taken_port(FIRST, PORT), taken_port(SECOND, PORT):
            await world.service("moves", port=PORT)
            assert await world.served("moves") == THIRD
            await world.told("moves", "EnsuredLoadBalancer")
            reasons = [reason for reason, _ in await world.events("moves")]
            assert "SyncLoadBalancerFailed" not in reasons
            assert [where for where, _ in parts.store.holders()] == [THIRD]
            await world.service("other", port=PORT + 1)
            assert await world.served("other") in (FIRST, SECOND)


async def test_a_port_held_on_all_addresses_is_reported_once(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        with contextlib.ExitStack() as held:
            for where in (FIRST, SECOND):
                held.enter_context(taken_port(where, PORT))
            with taken_port(THIRD, PORT):
                await world.service("stuck", port=PORT)
                said = await world.told("stuck", "SyncLoadBalancerFailed")
                assert f"another process of this host holds port {PORT}/TCP of {PLACE}." in said
                assert "2 other addresses" in said
                [(where, _)] = parts.store.holders()
            if where != THIRD:
                held.close()
            assert await world.served("stuck") == where
            assert [reason for reason, _ in await world.events("stuck")].count("SyncLoadBalancerFailed") == 1


async def test_a_port_held_everywhere_costs_no_exchange(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        with taken_port("0.0.0.0", 0) as everywhere:
            port = everywhere.getsockname()[1]
            await world.service("everywhere", port=port)
            said = await world.told("everywhere", "SyncLoadBalancerFailed")
            assert f"another process of this host holds port {port}/TCP of all addresses" in said
            [(where, holder)] = parts.store.holders()
            assert holder.name == "everywhere"
        assert await world.served("everywhere") == where


async def test_an_address_that_clients_know_is_kept(world: BalancerWorld) -> None:
    async with world.worker():
        await world.service("known", port=PORT)
        where = await world.served("known")
        with taken_port(where, PORT + 1):
            ports = [{"name": "main", "port": PORT}, {"name": "more", "port": PORT + 1}]
            await world.merge("known", {"spec": {"ports": ports}})
            said = await world.told("known", "SyncLoadBalancerFailed")
            assert f"port {PORT + 1}/TCP of {where}" in said
            assert await world.served("known") == where


async def test_a_requested_address_is_waited_for(world: BalancerWorld) -> None:
    fixed = {"annotations": {"loadbalancer.windowbox/address": FIRST}}
    async with world.worker():
        with taken_port(FIRST, PORT):
            await world.service("fixed", port=PORT, metadata=fixed)
            await world.told("fixed", "SyncLoadBalancerFailed")
        assert await world.served("fixed") == FIRST


async def test_an_exchange_of_addresses_comes_to_an_end(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    ranges = [{"prefixes": [f"{PLACE}.32/27"]}]
    async with (
        balancer_world(control_plane, nats, tmp_path, "endless", ranges=ranges) as world,
        world.worker() as parts,
    ):
        with contextlib.ExitStack() as held:
            for number in range(32, 64):
                held.enter_context(taken_port(f"{PLACE}.{number}", PORT))
            await world.service("endless", port=PORT)
            said = await world.told("endless", "SyncLoadBalancerFailed")
            assert f"and of {MOST_OCCUPIED - 1} other addresses" in said
            [(where, _)] = parts.store.holders()
        assert await world.served("endless") == where
