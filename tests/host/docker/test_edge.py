"""The edge, as load balancers use it, with its Envoys in containers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.host.docker import traffic
from tests.host.docker.host import BACKEND4, Host
from tests.host.docker.test_attachments import ADDRESS4
from tests.host.docker.traffic import LABELS, backend, balancer
from tests.support.rules import rule
from tests.support.running import running, soon
from windowbox.models.loadbalancers import LoadBalancer
from workers.loadbalancer.envoy.attachments import Attachment
from workers.loadbalancer.envoy.edge import Edge

PATIENCE = 60.0
FLEXIBLE = ["docker-host+folder", "docker-routed"]
ALL = [*FLEXIBLE, "docker-per-service+folder"]
"""One of each kind. That files reach Envoy with a folder and without, the tests of attachments show."""

everywhere = pytest.mark.parametrize("settings", ALL, indirect=True)
where_ports_are_free = pytest.mark.parametrize("settings", FLEXIBLE, indirect=True)


@contextlib.asynccontextmanager
async def kept(attachment: Attachment, name: str = "edge") -> AsyncIterator[Edge]:
    edge = Edge(attachment, name, labels=LABELS)
    async with running(edge.keep()):
        yield edge


async def served(edge: Edge, *wanted: LoadBalancer) -> dict[str, str]:
    """What the load balancers lack once it is known how they stand."""
    await soon(edge.write(wanted))
    async with asyncio.timeout(PATIENCE + 10):
        told = [one async for one in edge.wait_applied(wanted, PATIENCE)]
    return {place: why for one in told for place, why in one.problems.items()}


@rule("LB-14-docker", "LB-11-3")
@everywhere
async def test_load_balancers_come_change_and_go(attachment: Attachment, host: Host) -> None:
    async with backend("a", BACKEND4) as a, backend("b", BACKEND4) as b, kept(attachment) as edge:
        one = a.listener(ADDRESS4, 80)
        assert await served(edge, balancer(one)) == {}
        assert (await traffic.greeting(ADDRESS4, 80)).startswith("a ")

        others = balancer(one, b.listener(ADDRESS4, 81), b.listener(ADDRESS4, 81, "UDP"))
        assert await served(edge, others) == {}
        assert (await traffic.greeting(ADDRESS4, 80)).startswith("a ")
        assert (await traffic.greeting(ADDRESS4, 81)).startswith("b ")
        assert await traffic.echo(ADDRESS4, 81, b"hello") == b"b hello"

        assert not await edge.write([others])
        assert await served(edge, balancer(b.listener(ADDRESS4, 81))) == {}
        assert (await traffic.greeting(ADDRESS4, 81)).startswith("b ")
    await edge.end()
    assert host.containers() == set()


@rule("LB-11-9")
@everywhere
async def test_an_edge_whose_container_is_removed_comes_back(attachment: Attachment, host: Host) -> None:
    async with backend("a", BACKEND4) as a, kept(attachment) as edge:
        assert await served(edge, balancer(a.listener(ADDRESS4, 80))) == {}
        host.engine.docker("rm", "--force", *host.containers())
        await traffic.greeted(ADDRESS4, 80, "a")


@everywhere
async def test_a_successor_goes_on_without_a_write(attachment: Attachment, host: Host) -> None:
    async with backend("a", BACKEND4) as a:
        wanted = balancer(a.listener(ADDRESS4, 80), a.listener(ADDRESS4, 80, "UDP"))
        async with kept(attachment) as edge:
            assert await served(edge, wanted) == {}
        before = {name: host.inspected(name)["State"]["StartedAt"] for name in host.containers()}

        async with kept(attachment) as successor:
            assert not await soon(successor.write([wanted]))
            assert await successor.health()
        assert {name: host.inspected(name)["State"]["StartedAt"] for name in before} == before


@rule("LB-15-12")
@where_ports_are_free
@pytest.mark.timeout(300)
async def test_no_connection_is_refused_while_an_envoy_is_replaced(
    attachment: Attachment, host: Host
) -> None:
    async with backend("a", BACKEND4) as a, kept(attachment) as edge:
        assert await served(edge, balancer(a.listener(ADDRESS4, 80))) == {}
        greetings: list[str] = []

        async def come_again() -> None:
            while True:
                greetings.append(await traffic.greeting(ADDRESS4, 80))

        async with traffic.held(ADDRESS4) as goes_on:
            async with running(come_again()):
                await soon(edge.replace())
                await traffic.greeting(ADDRESS4, 80)
            await goes_on()

        assert all(greeting.startswith("a ") for greeting in greetings)
        old, *_ = await attachment.found("edge")
        await soon(old.ended())
        assert (await traffic.greeting(ADDRESS4, 80)).startswith("a ")
