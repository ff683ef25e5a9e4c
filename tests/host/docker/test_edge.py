"""The edge with its Envoys in containers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.host.docker import traffic
from tests.host.docker.host import BACKEND4, Host
from tests.host.docker.test_attachments import ADDRESS4, everywhere
from tests.host.docker.traffic import LABELS, backend, listener
from tests.servers.envoy.clients import greeting, talk
from tests.servers.envoy.world import balancer, problems, tracked
from tests.support.rules import rule
from tests.support.running import running, soon
from windowbox.models.loadbalancers import Listener
from workers.loadbalancer.envoy.attachments import Attachment
from workers.loadbalancer.envoy.edge import Edge

HOST, ROUTED, PER_SERVICE = "docker-host", "docker-routed", "docker-per-service"
"""One of each kind."""

at_first_on_the_host = everywhere(HOST, among=(HOST, ROUTED, PER_SERVICE))


@contextlib.asynccontextmanager
async def kept(attachment: Attachment) -> AsyncIterator[Edge]:
    edge = traffic.kept_by(attachment, LABELS)
    async with running(edge.keep()):
        yield edge


async def served(edge: Edge, *listeners: Listener) -> dict[str, str]:
    """Write these listeners, and return their problems once they are known."""
    await soon(edge.write(tracked([one := balancer(*listeners)])))
    return await soon(problems(edge, one, 50))


@rule("LB-14-docker", "LB-11-3")
@everywhere(HOST, PER_SERVICE, among=(HOST, ROUTED, PER_SERVICE))
async def test_load_balancers_come_change_and_go(attachment: Attachment, host: Host) -> None:
    async with backend("a", BACKEND4) as a, backend("b", BACKEND4) as b, kept(attachment) as edge:
        one, tcp, udp = listener(a, ADDRESS4), listener(b, ADDRESS4, 81), listener(b, ADDRESS4, 81, "UDP")
        assert await served(edge, one) == {}
        assert await greeting(ADDRESS4, 80) == "a"

        assert await served(edge, one, tcp, udp) == {}
        assert await greeting(ADDRESS4, 80) == "a"
        assert await greeting(ADDRESS4, 81) == "b"
        assert await traffic.answered(ADDRESS4, 81) == "b"

        assert await served(edge, tcp) == {}
        assert await greeting(ADDRESS4, 81) == "b"
    await edge.end()
    assert host.containers() == set()


@rule("LB-11-9")
@at_first_on_the_host
async def test_an_edge_recreates_a_removed_container(attachment: Attachment, host: Host) -> None:
    async with backend("a", BACKEND4) as a, kept(attachment) as edge:
        assert await served(edge, listener(a, ADDRESS4)) == {}
        host.engine.docker("rm", "--force", *host.containers())
        await traffic.greeted(ADDRESS4, 80, "a")


@at_first_on_the_host
async def test_a_successor_continues_with_the_same_envoy(attachment: Attachment, host: Host) -> None:
    async with backend("a", BACKEND4) as a:
        both = listener(a, ADDRESS4), listener(a, ADDRESS4, 80, "UDP")
        async with kept(attachment) as edge:
            assert await served(edge, *both) == {}
        before = {name: host.inspected(name)["State"]["StartedAt"] for name in host.containers()}

        async with kept(attachment) as successor:
            assert await served(successor, *both) == {}
            assert await successor.health()
        assert {name: host.inspected(name)["State"]["StartedAt"] for name in before} == before


@rule("LB-15-12")
@everywhere(HOST, among=(HOST, ROUTED))
@pytest.mark.timeout(300)
async def test_no_connection_is_refused_while_an_envoy_is_replaced(
    attachment: Attachment, host: Host
) -> None:
    async with backend("a", BACKEND4) as a, kept(attachment) as edge:
        assert await served(edge, listener(a, ADDRESS4)) == {}
        greetings: list[str] = []

        async def connect_forever() -> None:
            while True:
                greetings.append(await greeting(ADDRESS4, 80))

        async with talk(ADDRESS4, 80) as before:
            async with running(connect_forever()):
                await soon(edge.replace())
                await greeting(ADDRESS4, 80)
            assert await before.echo()

        assert set(greetings) == {"a"}
        old, *_ = await attachment.found("edge")
        await soon(old.ended())
        assert await greeting(ADDRESS4, 80) == "a"
