"""Envoys that share the network of one container, to which the host routes prefixes."""

from __future__ import annotations

import asyncio
import os
from ipaddress import ip_address, ip_network

import pytest

from tests.host.docker import traffic
from tests.host.docker.host import BACKEND4, IMAGE, NETWORK, Host
from tests.host.docker.traffic import backend, listener
from tests.servers.envoy.nodes import Node
from tests.servers.envoy.world import balancer, tracked
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.clients.docker import Engine
from windowbox.errors import Malformed, Refused
from workers.loadbalancer.envoy import bootstrap
from workers.loadbalancer.envoy.attachments import Attachment
from workers.loadbalancer.envoy.docker import containerroutes
from workers.loadbalancer.links import hostnetwork

ADDRESS = "172.18.255.231"
NODE = "10.77.0.5"
"""Only a route through its machine's host leads to it."""
BOX = "gardener-lb-kind-network"

pytestmark = pytest.mark.parametrize("settings", ["docker-routed"], indirect=True)


def inside(host: Host, family: str = "-4") -> str:
    """The routes in the Envoys' network."""
    return host.engine.docker("exec", BOX, "ip", family, "route")


def node(host: Host) -> str:
    """Start a container that has the node's address behind its own, with a greeting; returns its own."""
    greet = "ip address add 10.77.0.5/32 dev lo && exec nc -ll -p 30080 -e hostname"
    host.engine.docker(
        "run", "--detach", "--name=node", "--hostname=node", "--cap-add=NET_ADMIN", f"--network={NETWORK}",
        IMAGE, "sh", "-c", greet,
    )  # fmt: skip
    return str(host.inspected("node")["NetworkSettings"]["Networks"][NETWORK]["IPAddress"])


@rule("LB-10-routes", "LB-10-unused")
async def test_routes_to_nodes_are_removed_when_unused(attachment: Attachment, host: Host) -> None:
    hop = node(host)
    await attachment.prepare([ADDRESS])
    envoy = await attachment.start(traffic.order(attachment, listener(Node("node", NODE), ADDRESS)))

    await envoy.route({f"{NODE}/32": hop, "10.77.0.6/32": hop, "fd77::5/128": "fd00:10::9"})
    await traffic.greeted(ADDRESS, 80, "node")
    assert f"10.77.0.6 via {hop}" in inside(host)
    assert "fd77::5 via fd00:10::9" in inside(host, "-6")

    await envoy.route({f"{NODE}/32": hop})
    assert f"{NODE} via {hop}" in inside(host)
    assert "10.77.0.6" not in inside(host)
    assert "fd77::5" not in inside(host, "-6")

    await envoy.route({})
    assert "10.77" not in inside(host)
    assert not [route for route in host.routes() if "10.77" in route]


@pytest.mark.long  # test_an_edge_recreates_a_removed_container; that routes are written: the test before
@rule("LB-11-10")
async def test_routes_are_back_after_the_network_was_lost(attachment: Attachment, host: Host) -> None:
    hop = node(host)
    edge = traffic.kept_by(attachment)
    async with running(edge.keep()):
        await soon(edge.write(tracked([balancer(listener(Node("node", NODE), ADDRESS))])))
        await edge.route({f"{NODE}/32": hop})
        await traffic.greeted(ADDRESS, 80, "node")

        host.crash(BOX)

        await traffic.greeted(ADDRESS, 80, "node")


@rule("LB-15-12")
async def test_waiting_clients_survive_an_envoy_replacement(attachment: Attachment, host: Host) -> None:
    setting = hostnetwork.setting_of(hostnetwork.MIGRATE)
    if not setting.exists():
        pytest.skip(f"this system has no {hostnetwork.MIGRATE}")
    await attachment.prepare([ADDRESS])
    assert host.engine.docker("exec", BOX, "cat", str(setting)).strip() == "1"


@rule("LB-11-10")
async def test_an_impossible_route_fails_and_harms_no_other(attachment: Attachment, host: Host) -> None:
    await attachment.prepare([ADDRESS])
    envoy = await attachment.start(traffic.order(attachment))
    with pytest.raises(Refused, match=r"10\.77\.0\.5/32 via 203\.0\.113\.1"):
        await envoy.route({f"{NODE}/32": "203.0.113.1", "10.77.0.6/32": "172.18.0.1"})
    assert "10.77.0.6 via 172.18.0.1" in inside(host)
    with pytest.raises(Malformed, match="one family"):
        await envoy.route({f"{NODE}/32": "fd00::1"})
    with pytest.raises(Malformed, match="; reboot"):
        await envoy.route({f"{NODE}/32": "; reboot"})


async def test_edges_share_the_network_and_keep_their_routes_apart(
    attachment: Attachment, host: Host
) -> None:
    one = await attachment.start(traffic.order(attachment, name="one"))
    two = await attachment.start(traffic.order(attachment, name="two"))
    both, second = "10.77.0.1/32", "10.77.0.2/32"
    await one.route({both: "172.18.0.1"})
    await two.route({both: "172.18.0.1", second: "172.18.0.1"})

    await two.route({})

    assert "10.77.0.1 via 172.18.0.1" in inside(host)
    assert "10.77.0.2" not in inside(host)
    await two.end()
    assert BOX in host.containers()
    assert await attachment.names() == ["one"]
    await one.end()
    assert host.containers() == set()


@rule("LB-9-labels", "LB-11-13")
async def test_removing_the_network_container_ends_everything(
    attachment: Attachment, engine: Engine, host: Host
) -> None:
    envoy = await attachment.start(traffic.order(attachment))
    found = host.containers("network=kind", "label=gardener.cloud/role=loadbalancer")
    assert found == {BOX}
    assert found <= host.containers("label=kubernetes.io/cluster=kind")

    host.engine.docker("rm", "--force", *found)

    await soon(envoy.ended())
    # The engine starts it again, and lists it as running until that has failed: its network is gone.
    host.engine.docker("wait", *host.containers())
    assert host.containers(all=False) == set()


@pytest.mark.long  # test_removing_the_network_container_ends_everything, and leftovers in test_attachments.py
async def test_an_edge_is_recreated_after_a_teardown(attachment: Attachment, host: Host) -> None:
    async def has_ended() -> bool:
        return not await attachment.names()

    await attachment.prepare([ADDRESS])
    async with backend("a", BACKEND4) as a:
        order = traffic.order(attachment, listener(a, ADDRESS))
        await attachment.start(order)
        host.engine.docker("rm", "--force", BOX)
        await eventually(has_ended)
        assert await attachment.owners("edge") == order.files[bootstrap.OWNERS]
        await attachment.start(order)
        await traffic.greeted(ADDRESS, 80, "a")


async def test_addresses_outside_of_the_ranges_or_of_the_host_itself_are_reported(
    attachment: Attachment,
) -> None:
    outside, own = "198.51.100.7", "172.18.255.233"
    argv = ("ip", "address", "add", f"{own}/32", "dev", "lo")
    await (await asyncio.create_subprocess_exec(*argv)).wait()
    assert await attachment.prepare([ADDRESS, outside, own]) == {
        outside: f"{outside} is in none of the ranges: add its prefix to loadbalancer.ranges",
        own: f"this host has {own} itself: as root: ip address del {own} dev lo",
    }


async def test_without_root_the_command_is_reported(attachment: Attachment) -> None:
    prefix, hop = ip_network("198.51.100.0/24"), ip_address("172.18.0.2")
    os.seteuid(65534)
    try:
        reported = await containerroutes.have_route(prefix, hop)
    finally:
        os.seteuid(0)
    assert reported == "as root: ip -4 route replace 198.51.100.0/24 via 172.18.0.2"
