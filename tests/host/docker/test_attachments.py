"""What holds for Envoys in containers, however they are attached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.host.docker import traffic
from tests.host.docker.host import BACKEND4, BACKEND6, Host
from tests.host.docker.traffic import backend, balancer
from tests.support.rules import rule
from tests.support.running import soon
from windowbox.clients.docker import Engine
from workers.loadbalancer.envoy import bootstrap
from workers.loadbalancer.envoy.attachments import Attachment

ADDRESS4, ADDRESS6 = "172.18.255.230", "fd00:ff::e6"
FLEXIBLE = ["docker-host+folder", "docker-host", "docker-routed+folder", "docker-routed"]
ALL = [*FLEXIBLE, "docker-per-service+folder", "docker-per-service"]

everywhere = pytest.mark.parametrize("settings", ALL, indirect=True)
where_ports_are_free = pytest.mark.parametrize("settings", FLEXIBLE, indirect=True)


@everywhere
async def test_tcp_and_udp_of_both_families_arrive(attachment: Attachment) -> None:
    async with backend("four", BACKEND4) as four, backend("six", BACKEND6) as six:
        wanted = balancer(
            four.listener(ADDRESS4, 80),
            four.listener(ADDRESS4, 80, "UDP"),
            six.listener(ADDRESS6, 80),
            six.listener(ADDRESS6, 80, "UDP"),
        )
        assert await attachment.prepare([ADDRESS4, ADDRESS6]) == {}
        await attachment.start(traffic.order(attachment, wanted))

        await traffic.greeted(ADDRESS4, 80, "four")
        await traffic.greeted(ADDRESS6, 80, "six")
        assert await traffic.echo(ADDRESS4, 80, b"hello") == b"four hello"
        assert await traffic.echo(ADDRESS6, 80, b"hello") == b"six hello"


@rule("LB-11-1", "LB-11-3", "LB-15-1")
@where_ports_are_free
async def test_a_port_is_added_to_the_envoy_that_runs(attachment: Attachment) -> None:
    async with backend("a", BACKEND4) as a, backend("b", BACKEND4) as b:
        envoy = await traffic.serving(attachment, a, ADDRESS4)
        async with traffic.held(ADDRESS4) as goes_on:
            both = balancer(a.listener(ADDRESS4, 80), b.listener(ADDRESS4, 81))
            await traffic.update(attachment, envoy, both)
            await traffic.greeted(ADDRESS4, 81, "b")
            await goes_on()


@rule("LB-11-1")
@everywhere
async def test_another_backend_reaches_the_envoy_that_runs(attachment: Attachment) -> None:
    async with backend("a", BACKEND4) as a, backend("b", BACKEND4) as b:
        envoy = await traffic.serving(attachment, a, ADDRESS4)

        await traffic.update(attachment, envoy, balancer(b.listener(ADDRESS4, 80)))

        await traffic.greeted(ADDRESS4, 80, "b")


@rule("LB-11-9")
@everywhere
async def test_an_envoy_that_crashed_is_back_with_its_last_files(attachment: Attachment, host: Host) -> None:
    async with backend("a", BACKEND4) as a, backend("b", BACKEND4) as b:
        envoy = await traffic.serving(attachment, a, ADDRESS4)
        await traffic.update(attachment, envoy, balancer(b.listener(ADDRESS4, 80)))
        (container,) = host.containers("label=windowbox/edge=edge")

        host.crash(container)

        await soon(envoy.ended())
        await traffic.greeted(ADDRESS4, 80, "b")
        (back,) = await attachment.found("edge")
        ended = asyncio.ensure_future(back.ended())
        await traffic.live(back)
        assert not ended.done()
        host.engine.docker("rm", "--force", container)
        await soon(ended)


@everywhere
async def test_a_successor_takes_over_the_running_envoy(
    attachment: Attachment, attach: Callable[[Engine], Attachment], engine: Engine
) -> None:
    async with backend("a", BACKEND4) as a, backend("b", BACKEND4) as b:
        order = traffic.order(attachment, balancer(a.listener(ADDRESS4, 80)), generation=3)
        await traffic.serving(attachment, a, ADDRESS4, generation=3)

        successor = attach(engine)
        assert await successor.names() == ["edge"]
        assert await successor.kept("edge") == order.files
        (envoy,) = await successor.found("edge")
        assert envoy.name == "edge"
        assert envoy.generation == 3
        assert await envoy.read(bootstrap.LISTENERS) == order.files[bootstrap.LISTENERS]
        assert await envoy.read("nothing.json") is None
        await traffic.update(successor, envoy, balancer(b.listener(ADDRESS4, 80)))
        await traffic.greeted(ADDRESS4, 80, "b")


@everywhere
async def test_leftovers_of_an_earlier_try_are_replaced(attachment: Attachment) -> None:
    await attachment.prepare([ADDRESS4])
    async with backend("a", BACKEND4) as a, backend("b", BACKEND4) as b:
        await attachment.start(traffic.order(attachment, balancer(a.listener(ADDRESS4, 80))))
        await attachment.start(traffic.order(attachment, balancer(b.listener(ADDRESS4, 80))))
        await traffic.greeted(ADDRESS4, 80, "b")
        assert len(await attachment.found("edge")) == 1


@rule("LB-15-12")
@where_ports_are_free
async def test_one_generation_makes_way_for_the_next(attachment: Attachment) -> None:
    async with backend("a", BACKEND4) as a:
        old = await traffic.serving(attachment, a, ADDRESS4, generation=9)
        async with traffic.held(ADDRESS4) as goes_on:
            wanted = balancer(a.listener(ADDRESS4, 80))
            new = await attachment.start(traffic.order(attachment, wanted, generation=10))
            await traffic.live(new)
            assert [envoy.generation for envoy in await attachment.found("edge")] == [9, 10]
            await traffic.update(attachment, old, balancer())
            await goes_on()
            await old.end()
        assert [envoy.generation for envoy in await attachment.found("edge")] == [10]
        assert (await traffic.greeting(ADDRESS4, 80)).startswith("a ")


@rule("LB-9-labels", "LB-11-13")
@everywhere
async def test_nothing_is_left_behind_at_the_end(attachment: Attachment, host: Host) -> None:
    before = host.routes()
    await attachment.prepare([ADDRESS4, ADDRESS6])
    envoy = await attachment.start(traffic.order(attachment, balancer()))
    await traffic.live(envoy)
    assert host.containers("label=gardener.cloud/role=loadbalancer") == host.containers()
    assert host.containers("label=gardener.cloud/service=shop/web") == host.containers("label=windowbox/edge")

    await envoy.end()

    await soon(envoy.ended())
    assert host.containers() == set()
    assert host.routes() == before
    assert await attachment.names() == []
