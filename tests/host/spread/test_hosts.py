"""Addresses that several hosts share: each is on one of them, and moves when its host dies."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from bus.leases import members
from commands import formatting
from commands.balancers import balancerquery
from sandbox.nodes import hostresources
from tests.host.spread import world
from tests.host.spread.world import Spread
from tests.support import servers
from tests.support.natsserver import NatsServer
from tests.support.running import eventually
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edge import placement

logger = logging.getLogger(__name__)

Addresses = Mapping[str, tuple[str, ...]]
"""The addresses of each Service, the first of IPv4."""


def need() -> None:
    if reason := hostresources.unsuited():
        pytest.skip(f"network namespaces need {reason}")
    servers.need("nats-server")


def places(spread: Spread, addresses: Addresses) -> dict[str, str]:
    """The host of each Service while all hosts live."""
    names = {host.name for host in spread.hosts}
    return {name: placement.placed(found[0], names) for name, found in addresses.items()}


async def settled(spread: Spread, addresses: Addresses) -> dict[str, str]:
    """The host of each Service, once each is where it belongs, and serves."""
    expected = places(spread, addresses)

    async def look() -> bool:
        return await spread.holders() == expected

    await eventually(look, 60)
    for found in addresses.values():
        for address in found:
            (await world.connection(address)).writer.close()
    for name, found in addresses.items():
        for host in spread.hosts:
            there = set(found) & host.addresses()
            assert there == (set(found) if host.name == expected[name] else set()), (name, host.name)
    return expected


async def shows(spread: Spread, places: Mapping[str, str], dead: str = "") -> None:
    """What a person sees: `windowbox lb list` and the lines of hosts in `windowbox status`."""
    found = await balancerquery.load_balancers(spread.bus, LoadBalancerSettings())
    assert {one.ref.name: one.host for one in found.balancers} == places
    counts = Counter(places.values())
    lines = list(formatting.edge_lines(found.edge))
    for host in spread.hosts:
        [line] = [line for line in lines if line.startswith(f"Host {host.name}: ")]
        if host.name == dead:
            assert line == f"Host {dead}: its edge does not answer"
        else:
            assert line.endswith(f", {counts[host.name]} load balancers")


async def served_again(address: str) -> float:
    """The time at which a new connection to the address works."""
    while not await world.connect(address, 0.2):  # noqa: ASYNC110
        await asyncio.sleep(0.02)  # refused connections fail at once
    return time.monotonic()


async def test_addresses_of_a_dead_host_move_and_others_notice_nothing(
    tmp_path: Path, nats: NatsServer
) -> None:
    need()
    async with world.opened(tmp_path, nats, ("one", "two", "three")) as spread:
        addresses = {name: await spread.serve(name) for name in (f"web-{i}" for i in range(24))}
        before = await settled(spread, addresses)
        await shows(spread, before)
        dead = Counter(before.values()).most_common(1)[0][0]
        moving = {name for name, host in before.items() if host == dead}
        others = [a for name in addresses.keys() - moving for a in addresses[name]]
        kept = [await world.connection(address) for address in others]
        await asyncio.sleep(members.DOUBT)  # nobody is declared dead soon after a start

        began = time.monotonic()
        spread.die(spread.host(dead))
        async with asyncio.timeout(30):
            ends = await asyncio.gather(*(served_again(a) for name in moving for a in addresses[name]))
        assert all([await one.echoes() for one in kept])
        logger.warning(
            "%d addresses of a dead host serve again: the first after %.2f s, the last after %.2f s; %d "
            "connections to other hosts noticed nothing",
            *(len(ends), min(ends) - began, max(ends) - began, len(kept)),
        )
        after = await spread.holders()
        assert {name: host for name, host in after.items() if name not in moving} == {
            name: host for name, host in before.items() if name not in moving
        }
        assert dead not in after.values()
        await shows(spread, after, dead)


async def test_addresses_stay_in_an_upgrade_and_leave_a_host_that_ends_or_lost_the_bus(
    tmp_path: Path, nats: NatsServer
) -> None:
    need()
    async with world.opened(tmp_path, nats, ("one", "two")) as spread:
        addresses = {name: await spread.serve(name) for name in (f"web-{i}" for i in range(12))}
        before = await settled(spread, addresses)
        one, two = spread.hosts
        kept = [await world.connection(address) for found in addresses.values() for address in found]
        await one.stop("edge")
        one.start("edge")
        await eventually(lambda: one.log("edge").count("owner of edge.one") == 2, 30)
        addresses["late"] = await spread.serve("late")
        before = await settled(spread, addresses)
        assert all([await each.echoes() for each in kept])

        one.bus.hang()
        await eventually(lambda: not one.addresses(), 30)  # its launcher hears the other's announcements
        assert two.addresses() == {address for found in addresses.values() for address in found}
        assert all([await world.connection(address) for address in two.addresses()])

        one.bus.resume()
        assert await settled(spread, addresses) == before

        for role in ("launch", "edge"):  # as on a host that is shut down
            await one.stop(role)
        every = {address for found in addresses.values() for address in found}
        await eventually(lambda: two.addresses() == every, 10)
        assert not one.addresses()
        assert all([await world.connection(address) for address in every])
