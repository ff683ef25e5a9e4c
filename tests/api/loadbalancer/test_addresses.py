"""Which addresses Services get: ports that other processes hold, limits, and a status that lies."""

from __future__ import annotations

import contextlib

import pytest

from tests.api.loadbalancer.conftest import NODE_PORT, PLACE
from tests.support.balancerworld import (
    BalancerWorld,
    address,
    always,
    asking,
    condition,
    greeting,
    taken_port,
)
from tests.support.cases import cases, long
from tests.support.running import eventually
from workers.loadbalancer.edgestate import MOST_OCCUPIED
from workers.loadbalancer.loadbalancerpool import BalancerParts

FIRST, SECOND, THIRD = ADDRESSES = [f"{PLACE}.{number}" for number in (17, 18, 19)]
PORT = 8067
three_addresses = pytest.mark.serves("17/32", "18/31")


@three_addresses
async def test_another_address_is_chosen_where_a_port_is_held(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        with taken_port(FIRST, PORT), taken_port(SECOND, PORT):
            assert await world.serve("moves", PORT) == THIRD
            await world.reported("moves", "EnsuredLoadBalancer")
            assert "SyncLoadBalancerFailed" not in await world.reasons("moves")
            assert [where for where, _ in parts.store.holders()] == [THIRD]
            assert await world.serve("other", PORT + 1) in (FIRST, SECOND)


@three_addresses
async def test_a_port_held_on_all_addresses_is_reported_once(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        with contextlib.ExitStack() as held:
            for where in (FIRST, SECOND):
                held.enter_context(taken_port(where, PORT))
            with taken_port(THIRD, PORT):
                await world.service("stuck", PORT)
                said = await world.reported("stuck", "SyncLoadBalancerFailed")
                assert f"another process of this host holds port {PORT}/TCP of {PLACE}." in said
                assert "2 other addresses" in said
                [(where, _)] = parts.store.holders()
            if where != THIRD:
                held.close()
            assert await world.served("stuck") == where
            assert (await world.reasons("stuck")).count("SyncLoadBalancerFailed") == 1


@pytest.mark.long  # the two tests above hold ports; unit/edge/test_reporter.py says which are reported
@three_addresses
async def test_a_port_held_everywhere_costs_no_exchange(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        with taken_port("0.0.0.0", 0) as everywhere:
            port = everywhere.getsockname()[1]
            await world.service("everywhere", port)
            said = await world.reported("everywhere", "SyncLoadBalancerFailed")
            assert f"another process of this host holds port {port}/TCP of all addresses" in said
            [(where, holder)] = parts.store.holders()
            assert holder.name == "everywhere"
        assert await world.served("everywhere") == where


@pytest.mark.long  # servers/ipam/test_store.py keeps what a status shows
@three_addresses
async def test_an_address_that_clients_know_is_kept(world: BalancerWorld) -> None:
    async with world.worker():
        where = await world.serve("known", PORT)
        with taken_port(where, PORT + 1):
            ports = [{"name": "main", "port": PORT}, {"name": "more", "port": PORT + 1}]
            await world.merge("known", {"spec": {"ports": ports}})
            said = await world.reported("known", "SyncLoadBalancerFailed")
            assert f"port {PORT + 1}/TCP of {where}" in said
            assert await world.served("known") == where


@pytest.mark.long  # the two tests above hold ports; unit/edge/test_reporter.py says which are reported
@three_addresses
async def test_a_requested_address_is_waited_for(world: BalancerWorld) -> None:
    async with world.worker():
        await world.serve("other", PORT, metadata=asking(address=SECOND))
        with taken_port(FIRST, PORT):
            await world.service("fixed", PORT, metadata=asking(address=FIRST))
            said = await world.reported("fixed", "SyncLoadBalancerFailed")
            assert f"another process of this host holds port {PORT}/TCP of {FIRST}" in said
        assert await world.served("fixed") == FIRST


@pytest.mark.long  # the two tests above hold ports; unit/edge/test_reporter.py says which are reported
@three_addresses
async def test_a_former_address_disappears_from_the_status(world: BalancerWorld) -> None:
    async with world.worker():
        assert await world.serve("mover", PORT, metadata=asking(address=FIRST)) == FIRST
        with taken_port(SECOND, PORT):
            await world.merge("mover", {"metadata": asking(address=SECOND)})
            said = await world.reported("mover", "SyncLoadBalancerFailed")
            assert f"another process of this host holds port {PORT}/TCP of {SECOND}" in said
            await world.until("mover", lambda found: not address(found))
        assert await world.served("mover") == SECOND


@pytest.mark.long  # the two tests above hold ports; unit/edge/test_reporter.py says which are reported
@pytest.mark.serves("32/27")
async def test_an_exchange_of_addresses_comes_to_an_end(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        with contextlib.ExitStack() as held:
            for number in range(32, 64):
                held.enter_context(taken_port(f"{PLACE}.{number}", PORT))
            await world.service("endless", PORT)
            said = await world.reported("endless", "SyncLoadBalancerFailed")
            assert f"and of {MOST_OCCUPIED - 1} other addresses" in said
            [(where, _)] = parts.store.holders()
        assert await world.served("endless") == where


@pytest.mark.serves("16/28", quota=1)
async def test_beyond_the_quota_a_service_waits_for_its_neighbour_to_go(world: BalancerWorld) -> None:
    words = "Services of this cluster have as many IPv4 addresses as a cluster may have (1)"
    async with world.worker():
        await world.serve("one")
        await world.service("two")
        assert "set a higher loadbalancer.quota" in await world.complaint("two", words)
        await world.until(
            "two", lambda one: words in condition(one, "LoadBalancerServing").get("message", "")
        )
        await world.delete("one")
        await world.served("two")


async def claim(world: BalancerWorld, *addresses: str) -> None:
    """Write addresses into the status of the Service `thief`."""
    ingress = [{"ip": one, "ipMode": "Proxy"} for one in addresses]
    await world.merge("thief", {"status": {"loadBalancer": {"ingress": ingress}}}, part="status")


async def owned(parts: BalancerParts) -> bool:
    held = {holder.name for _, holder in parts.store.holders()}
    return parts.store.is_complete() and held >= {"victim", "thief"}


@cases("wiped", long("another-owner", False), ("the-bus-is-wiped", True))
@pytest.mark.serves("16/29")
async def test_a_claimed_address_stays_with_its_owner(world: BalancerWorld, wiped: bool) -> None:
    async with world.worker():
        where = await world.serve("victim", node_port=NODE_PORT)
        await world.serve("thief")

    async def serves() -> bool:
        return await greeting(where) == "hello"

    async def forget_and_recover() -> None:
        await claim(world, where, *(f"{PLACE}.{n}" for n in range(16, 24) if f"{PLACE}.{n}" != where))
        if wiped:
            world.nats.wipe()
            world.nats.start()
        async with world.worker() as parts:
            await world.until("thief", lambda found: address(found) not in ("", where))
            await eventually(lambda: owned(parts))
            held = [holder.name for _, holder in parts.store.holders()]
            assert sorted(held) == ["thief", "victim"]
            assert {holder.name: a for a, holder in parts.store.holders()}["victim"] == where
            assert await world.serve("more") not in (where, "")

    await always(serves, forget_and_recover())


@pytest.mark.long  # the test above wipes it, too
@pytest.mark.serves("16/29")
async def test_claims_are_settled_while_the_bus_is_wiped(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        where = await world.serve("victim", node_port=NODE_PORT)
        own = await world.serve("thief")

        async def serves() -> bool:
            return await greeting(where) == "hello"

        async def forget_and_recover() -> None:
            world.nats.wipe()
            await claim(world, where, *(f"{PLACE}.{n}" for n in range(16, 24)))
            world.nats.start()
            await world.until("thief", lambda found: address(found) == own)
            await eventually(lambda: owned(parts))

        await always(serves, forget_and_recover())
        assert {h.name: a for a, h in parts.store.holders()} == {"victim": where, "thief": own}
