"""Clients of a load balancer, with a real Envoy between them and the nodes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from tests.servers.envoy.clients import PORT, counting, datagram, flow, greeting, named, talk
from tests.servers.envoy.nodes import Node, Silent
from tests.servers.envoy.world import World, balancer, listener, problems, tracked
from tests.support.cases import cases
from tests.support.rules import rule
from tests.support.running import eventually, soon
from windowbox.models.loadbalancers import Listener, Protocol, Target
from workers.loadbalancer.envoy import resources
from workers.loadbalancer.envoy.process import Process


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many files as this process may have open at most."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_files")
async def test_one_port_takes_more_clients_than_envoys_default(world: World) -> None:
    nodes, address = await world.nodes(2), world.address()
    await world.serve(listener(address, nodes))
    async with contextlib.AsyncExitStack() as open_connections:
        # A hundred at a time, as backlogs are short. The first may come before a node has been found healthy.
        names = set()
        for _ in range(11):
            talks = [open_connections.enter_async_context(talk(address)) for _ in range(100)]
            names |= {one.name for one in await asyncio.gather(*talks)}
        assert names == {"n1", "n2"}


@pytest.mark.parametrize("size", [pytest.param(n, id=f"LB-11-11-{n}-bytes") for n in (1, 9000, 60000)])
async def test_large_datagrams_pass_both_ways(world: World, size: int) -> None:
    nodes, address = await world.nodes(1), world.address()
    await world.serve(listener(address, nodes, "UDP"))
    assert await datagram(address, data=b"x" * size) == b"x" * size


@rule("LB-7-ranges", "LB-15-8", "LB-11-6")
async def test_clients_outside_the_ranges_receive_no_byte(world: World) -> None:
    nodes, address = await world.nodes(1), world.address()
    tcp, udp = listener(address, nodes), listener(address, nodes, "UDP")
    only = ("127.1.0.0/16", " 127.2.0.7/32", "127.1.2.0/24")

    assert await world.serve(replace(tcp, allowed=only), replace(udp, allowed=only)) == {}

    assert await greeting(address, source="127.1.9.9") == "n1"
    assert await greeting(address, source="127.2.0.7") == "n1"
    assert await greeting(address, source="127.2.0.8") == ""
    assert await named(address, source="127.1.9.9") == "n1"
    assert await named(address, source="127.2.0.8", patience=0.3) == ""
    counted = await world.edge.traffic()
    assert counted[tcp.name].turned_away >= 1
    assert counted[udp.name].turned_away == 1

    assert await world.serve(replace(tcp, allowed=()), replace(udp, allowed=())) == {}

    assert await greeting(address, source="127.1.9.9") == ""
    assert await named(address, source="127.1.9.9", patience=0.3) == ""


@rule("AWS-X5")
async def test_a_node_that_reaches_itself_gets_no_answer(world: World) -> None:
    """As often as on AWS: the only node always, one of two in half of its connections."""
    (node, other), address = await world.nodes(2), world.address()
    hairpin = replace(listener(address, [node]), hairpin=(node.endpoint.address,))
    assert await world.serve(hairpin) == {}
    assert await greeting(address, source="127.1.9.9") == "n1"
    assert [await greeting(address, source=node.endpoint.address) for _ in range(5)] == [""] * 5

    async with talk(address, source="127.1.9.9") as open_connection:
        both = (node.endpoint.address, other.endpoint.address)
        assert await world.serve(replace(listener(address, [node, other]), hairpin=both)) == {}
        found = {await greeting(address, source=node.endpoint.address) for _ in range(60)}
        assert "" in found
        assert found & {"n1", "n2"}
        # Nodes come and go: connections of other clients go on.
        assert await open_connection.echo()


@cases(
    "allowed reached",
    ("LB-7-ranges-ipv6-allowed", ("::1/128",), "n1"),
    ("LB-7-ranges-ipv6-denied", ("fd00::/8",), ""),
)
async def test_ranges_hold_for_ipv6(world: World, allowed: tuple[str, ...], reached: str) -> None:
    port, node_port, check = (_free_port_of_ipv6() for _ in range(3))
    node = await world.node("n1", "::1", node_port, check)
    one = Listener("::1", port, "TCP", (node.endpoint,), check=check, allowed=allowed)
    assert await world.serve(one, replace(one, protocol="UDP")) == {}
    assert await greeting("::1", port) == reached
    assert await named("::1", port, patience=5 if reached else 0.3) == reached


@rule("LB-7-affinity", "LB-15-9", "LB-11-6")
async def test_a_client_stays_with_its_node_over_tcp_and_udp(world: World) -> None:
    nodes, address = await world.nodes(10), world.address()
    one = replace(listener(address, nodes), affinity=True)
    await world.serve(one, replace(one, protocol="UDP"))
    clients = [f"127.9.{i // 250}.{i % 250 + 1}" for i in range(500)]

    before = {c: await greeting(address, source=c) for c in clients}
    for c in clients[:50]:
        assert await greeting(address, source=c) == await named(address, source=c) == before[c]
    assert min(Counter(before.values()).values()) > 20

    rest = replace(one, endpoints=one.endpoints[1:])
    await world.serve(rest, replace(rest, protocol="UDP"))
    stayed = [c for c in clients if before[c] != "n1"]
    after = {c: await greeting(address, source=c) for c in stayed}

    assert "n1" not in after.values()
    assert sum(after[c] != before[c] for c in stayed) <= len(clients) * 0.05


@rule("LB-7-affinity")
async def test_tcp_and_udp_agree_though_their_node_ports_differ(world: World) -> None:
    nodes, address = await world.nodes(5), world.address()
    others = [await world.node(n.name, n.address, port=30081, check=10257) for n in nodes]
    tcp, udp = listener(address, nodes), listener(address, others, "UDP")
    await world.serve(replace(tcp, affinity=True), replace(udp, affinity=True))
    for source in (f"127.9.9.{i}" for i in range(1, 41)):
        assert await greeting(address, source=source) == await named(address, source=source)


@rule("LB-7-cluster")
async def test_an_unhealthy_node_gets_no_traffic(world: World) -> None:
    """Its load balancer stays the same object."""
    nodes, address = await world.nodes(2), world.address()
    sick, _ = targets = tuple(Target(node.address, node.name) for node in nodes)
    port = Listener(address, PORT, "TCP", node_port=nodes[0].port)
    wanted = tracked([one := replace(balancer(port), targets={"IPv4": targets})])

    async def greeted(unhealthy: frozenset[str]) -> set[str]:
        await world.edge.write(wanted, unhealthy)
        assert await world.edge.wait_accepted()
        return {await greeting(address) for _ in range(40)}

    await world.edge.write(wanted)
    assert await problems(world.edge, one) == {}
    for _ in range(2):
        assert await greeted(frozenset({sick.address})) == {"n2"}
        assert await greeted(frozenset()) == {"n1", "n2"}


@rule("LB-7-local", "LB-15-13")
async def test_without_a_healthy_node_connections_are_closed(world: World) -> None:
    nodes, address = await world.nodes(2), world.address()
    for node in nodes:
        node.healthy = False
    assert await world.serve(one := listener(address, nodes)) == {}
    assert await greeting(address) == ""
    health = await world.edge.health()
    assert [(h.name, h.healthy) for h in health[one.name]] == [("n1", False), ("n2", False)]


@rule("LB-7-draining", "LB-7-cluster")
async def test_a_draining_node_keeps_only_old_connections(world: World) -> None:
    nodes, address = await world.nodes(2), world.address()
    await world.serve(listener(address, nodes))
    async with talk(address) as before:
        draining = next(node for node in nodes if node.name == before.name)
        draining.healthy = False

        async def left() -> bool:
            (found,) = (await world.edge.health()).values()
            return not any(one.healthy for one in found if one.name == draining.name)

        await eventually(left)

        assert await before.echo()
        assert draining.name not in {await greeting(address) for _ in range(20)}

        draining.healthy = True

        async def back() -> bool:
            return await greeting(address) == draining.name

        await eventually(back)


@rule("LB-7-local")
async def test_pods_move_before_their_new_node_is_checked(world: World) -> None:
    (old, new), address = await world.nodes(2), world.address()
    new.healthy = False
    await world.serve(listener(address, [old, new]))
    moved, tried = asyncio.Event(), asyncio.Event()

    async def move() -> None:
        old.healthy, new.healthy = False, True
        moved.set()

    async def wait() -> None:
        await tried.wait()

    old.asked, new.asked = move, wait
    await soon(moved.wait())
    # The old node has answered 503, and serves until its Pod has ended; the new one has not answered yet.
    greeted = [await greeting(address) for _ in range(20)]
    tried.set()

    while greeted[-1] != "n2":
        greeted.append(await greeting(address))
    assert "" not in greeted


@rule("LB-15-14", "LB-15-13", "LB-2-empty")
async def test_without_nodes_clients_do_not_hang(world: World) -> None:
    address = world.address()
    assert await world.serve(listener(address, []), listener(address, [], "UDP")) == {}
    async with asyncio.timeout(20):  # one that hangs does so until its idle timeout, an hour
        assert await greeting(address) == ""


@rule("LB-15-7")
async def test_a_silent_node_delays_only_by_the_checks_timeout(world: World) -> None:
    nodes, address, silent = await world.nodes(3), world.address(), world.address()
    with contextlib.closing(Silent(silent)):
        endpoints = [*nodes, Node("silent", silent)]
        assert await world.serve(listener(address, endpoints), patience=20) == {}
        assert {await greeting(address) for _ in range(20)} <= {"n1", "n2", "n3"}


@cases("affinity", ("LB-15-15-random", False), ("LB-15-15-affinity", True))
async def test_a_node_that_dies_costs_no_connection(world: World, affinity: bool) -> None:
    nodes, address = await world.nodes(4), world.address()
    await world.serve(replace(listener(address, nodes), affinity=affinity))
    for node in nodes[:3]:
        # Not under traffic: connections that the node has already taken die with it.
        await node.stop()
        async with counting(address) as count:
            await count.further(40)
        assert count.failed == []
        assert node.name not in count.reached


@rule("LB-15-5", "LB-15-6")
async def test_udp_flows_survive_changes_of_other_nodes(world: World) -> None:
    nodes, address = await world.nodes(4), world.address()
    await world.serve(listener(address, nodes[:3], "UDP"))

    async with flow(address) as one:
        before = await one.ask()  # names the port from which Envoy speaks for this flow
        assert before is not None
        its = before.split()[0].decode()
        for left in (nodes, [n for n in nodes if n.name in (its, "n4")]):
            await world.serve(listener(address, left, "UDP"))
            assert await one.ask() == before
        await world.serve(listener(address, [nodes[3]], "UDP"))

        async def moved() -> bool:
            return (await one.ask() or b"").startswith(b"n4 ")

        await eventually(moved)


@rule("LB-2-idempotent")
async def test_an_unchanged_load_balancer_sends_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    nodes, address = await world.nodes(2), world.address()
    one = balancer(listener(address, nodes), listener(address, nodes, "UDP"))
    await world.serve(*one.listeners)
    again = balancer(*(replace(x, endpoints=tuple(reversed(x.endpoints))) for x in reversed(one.listeners)))
    caplog.set_level("DEBUG")
    await world.serve(*again.listeners)
    assert "resources sent" not in caplog.text


@pytest.mark.parametrize("others", [pytest.param(0, id="alone"), pytest.param(30, id="among-many")])
async def test_an_address_is_in_use_until_its_last_connection_ends(world: World, others: int) -> None:
    nodes, address, unused = await world.nodes(1), world.address(), world.address()
    asked = [address, unused, *(world.address() for _ in range(others))]
    await world.serve(*(listener(one, nodes) for one in (address, unused)))
    async with talk(address):
        await world.serve(listener(world.address(), nodes))
        assert await world.edge.wait_accepted()
        assert await world.edge.in_use(asked) == {address}

    async def is_unused() -> bool:
        return not await world.edge.in_use(asked)

    await eventually(is_unused)


@rule("LB-15-2")
async def test_a_port_in_use_is_reported_and_harms_no_other(world: World) -> None:
    nodes, address = await world.nodes(1), world.address()
    one = balancer(listener(address, nodes), listener(address, nodes, port=PORT + 1))
    both = [one, balancer(listener(world.address(), nodes), name="other")]
    with socket.create_server((address, PORT)):
        await world.edge.write(tracked(both))
        found = {s.load_balancer.ref.name: s async for s in world.edge.wait_applied(both)}

        assert found["other"].problems == {}
        why = f"another process of this host holds port 8080/TCP of {address}"
        assert found["web"].problems == {"8080/TCP": why}
        assert found["web"].occupied == {address: ("8080/TCP",)}
        assert await greeting(address, PORT + 1) == "n1"

    await world.edge.write(tracked(both), retry=True)  # as its port may have become free
    after = {s.load_balancer.ref.name: s.problems async for s in world.edge.wait_applied(both)}

    assert after == {"web": {}, "other": {}}
    assert await greeting(address) == "n1"


async def test_an_unsettled_listener_reports_the_awaited_check(world: World) -> None:
    silent = world.address()
    await world.serve(listener(world.address(), []))

    async def is_reported() -> bool:
        """Once Envoy reads it in time, which takes it longer on a busy machine."""
        found = await world.serve(listener(world.address(), [Node("silent", silent)]), patience=0.5)
        return found == {"8080/TCP": "Envoy waits for the first health check of its endpoints"}

    with contextlib.closing(Silent(silent)):
        await eventually(is_reported)


@rule("LB-7-families")
async def test_hundreds_at_once_settle_one_by_one(world: World) -> None:
    nodes = await world.nodes(2)
    wanted = [balancer(listener(world.address(), nodes), name=f"web-{i}") for i in range(200)]
    await world.edge.write(tracked(wanted))
    assert [s.problems async for s in world.edge.wait_applied(wanted, patience=60)] == [{}] * 200
    assert len(await world.edge.traffic()) == 200


@rule("LB-11-8", "LB-15-6")
async def test_ports_cost_no_watches_of_files(world: World) -> None:
    nodes, address = await world.nodes(1), world.address()
    await world.serve(listener(address, nodes))
    before = _inotify_instances(await world.envoy())
    both: tuple[Protocol, ...] = ("TCP", "UDP")
    many = [listener(address, nodes, one, port=9000 + i) for i in range(200) for one in both]
    assert await world.serve(*many, patience=60) == {}
    assert await named(address, 9199) == "n1"
    assert _inotify_instances(await world.envoy()) == before < 10


async def test_new_endpoints_among_many_are_checked_often_first(world: World) -> None:
    nodes, address = await world.nodes(2), world.address()
    many = [listener(address, nodes, port=20_000 + number) for number in range(200)]
    await world.serve(*many)
    envoy = await world.envoy()

    async def interval() -> int:
        """Milliseconds for which Envoy has to leave an endpoint alone."""
        entries = orjson.loads(await envoy.ask("/runtime"))["entries"]
        return int(entries["health_check.min_interval"]["final_value"])

    async def usual() -> bool:
        return await interval() == resources.check_interval(400)

    await eventually(usual)
    await world.serve(*many, listener(address, nodes))
    assert await interval() < resources.check_interval(402)
    await eventually(usual)


def _inotify_instances(envoy: Process) -> int:
    count = 0
    for descriptor in Path(f"/proc/{envoy.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            count += os.readlink(descriptor) == "anon_inode:inotify"
    return count


def _free_port_of_ipv6() -> int:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port: int = server.getsockname()[1]
        return port
