"""Envoys in containers, with every attachment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.host.docker import traffic
from tests.host.docker.host import BACKEND4, BACKEND6, Host
from tests.host.docker.traffic import backend, listener
from tests.servers.envoy.clients import greeting, talk
from tests.support.rules import rule
from tests.support.running import soon
from windowbox.clients.docker import Engine
from workers.loadbalancer.envoy import bootstrap
from workers.loadbalancer.envoy.attachments import Attachment

ADDRESS4, ADDRESS6 = "172.18.255.230", "fd00:ff::e6"
FLEXIBLE = ("docker-host", "docker-routed")
ALL = (*FLEXIBLE, "docker-per-service")


def everywhere(*first: str, among: tuple[str, ...] = ALL) -> pytest.MarkDecorator:
    """With each kind of attachment: the first of them always, the others where long tests run.

    Over all tests, each kind is among the first.
    """
    marks = {one: () if one in first else pytest.mark.long for one in among}
    chosen = [pytest.param(one, marks=mark) for one, mark in marks.items()]
    return pytest.mark.parametrize("settings", chosen, indirect=True)


def where_ports_are_free(*first: str) -> pytest.MarkDecorator:
    return everywhere(*first, among=FLEXIBLE)


@everywhere("docker-host", "docker-routed")
async def test_tcp_and_udp_of_both_families_arrive(attachment: Attachment) -> None:
    async with backend("four", BACKEND4) as four, backend("six", BACKEND6) as six:
        both = ((four, ADDRESS4), (six, ADDRESS6))
        tcp, udp = ([listener(*place, 80, protocol) for place in both] for protocol in ("TCP", "UDP"))
        assert await attachment.prepare([ADDRESS4, ADDRESS6]) == {}
        await attachment.start(traffic.order(attachment, *tcp, *udp))
        for node, address in both:
            await traffic.greeted(address, 80, node.name)
            assert await traffic.answered(address, 80) == node.name


@rule("LB-11-1", "LB-11-3", "LB-15-1")
@where_ports_are_free("docker-routed")
async def test_a_port_is_added_to_the_envoy_that_runs(attachment: Attachment) -> None:
    async with backend("a", BACKEND4) as a, backend("b", BACKEND4) as b:
        envoy = await traffic.serving(attachment, a, ADDRESS4)
        async with talk(ADDRESS4, 80) as before:
            await traffic.update(attachment, envoy, listener(a, ADDRESS4), listener(b, ADDRESS4, 81))
            await traffic.greeted(ADDRESS4, 81, "b")
            assert await before.echo()


@rule("LB-11-9")
@everywhere("docker-host")
async def test_a_crashed_envoy_returns_and_is_configured_again(attachment: Attachment, host: Host) -> None:
    async with backend("a", BACKEND4) as a, backend("b", BACKEND4) as b:
        envoy = await traffic.serving(attachment, a, ADDRESS4)
        await traffic.update(attachment, envoy, listener(b, ADDRESS4))
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


@rule("LB-11-1")
@everywhere("docker-host", "docker-per-service")
async def test_a_successor_takes_over_the_running_envoy(
    attachment: Attachment, attach: Callable[[Engine], Attachment], engine: Engine
) -> None:
    async with backend("a", BACKEND4) as a, backend("b", BACKEND4) as b:
        order = traffic.order(attachment, listener(a, ADDRESS4), generation=3)
        await attachment.prepare([ADDRESS4])
        await attachment.start(order)
        await traffic.greeted(ADDRESS4, 80, "a")

        successor = attach(engine)
        assert await successor.names() == ["edge"]
        assert await successor.owners("edge") == order.files[bootstrap.OWNERS]
        (envoy,) = await successor.found("edge")
        assert (envoy.name, envoy.generation) == ("edge", 3)
        assert await envoy.read(bootstrap.BOOTSTRAP) == order.files[bootstrap.BOOTSTRAP]
        assert await envoy.read("nothing.json") is None
        await traffic.update(successor, envoy, listener(b, ADDRESS4))
        await traffic.greeted(ADDRESS4, 80, "b")


@everywhere("docker-host")
async def test_leftovers_of_an_earlier_start_are_replaced(attachment: Attachment) -> None:
    await attachment.prepare([ADDRESS4])
    async with backend("a", BACKEND4) as a, backend("b", BACKEND4) as b:
        await attachment.start(traffic.order(attachment, listener(a, ADDRESS4)))
        await attachment.start(traffic.order(attachment, listener(b, ADDRESS4)))
        await traffic.greeted(ADDRESS4, 80, "b")
        assert len(await attachment.found("edge")) == 1


@rule("LB-15-12")
@where_ports_are_free("docker-host")
async def test_one_generation_makes_way_for_the_next(attachment: Attachment) -> None:
    async with backend("a", BACKEND4) as a:
        old = await traffic.serving(attachment, a, ADDRESS4, generation=9)
        async with talk(ADDRESS4, 80) as before:
            new = await attachment.start(traffic.order(attachment, listener(a, ADDRESS4), generation=10))
            await traffic.live(new)
            assert [envoy.generation for envoy in await attachment.found("edge")] == [9, 10]
            await traffic.update(attachment, old)
            assert await before.echo()
            await old.end()
        assert [envoy.generation for envoy in await attachment.found("edge")] == [10]
        assert await greeting(ADDRESS4, 80) == "a"


@rule("LB-9-labels", "LB-11-13")
@everywhere("docker-host", "docker-routed", "docker-per-service")
async def test_the_last_envoy_leaves_nothing_behind(attachment: Attachment, host: Host) -> None:
    before = host.routes()
    await attachment.prepare([ADDRESS4, ADDRESS6])
    envoy = await attachment.start(traffic.order(attachment))
    await traffic.live(envoy)
    assert host.containers("label=gardener.cloud/role=loadbalancer") == host.containers()
    assert host.containers("label=gardener.cloud/service=shop/web") == host.containers("label=windowbox/edge")

    await envoy.end()

    await soon(envoy.ended())
    assert host.containers() == set()
    assert host.routes() == before
    assert await attachment.names() == []
