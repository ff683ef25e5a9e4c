"""What clients find at a load balancer, with a real Envoy between them and the nodes."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import pytest

from tests.servers.envoy.clients import datagram, greeting, talk
from tests.servers.envoy.nodes import Node, Silent
from tests.servers.envoy.world import World
from tests.support.rules import rule
from tests.support.running import eventually, soon
from windowbox.models.loadbalancers import Listener

PORT = 8080


def listener(address: str, nodes: list[Node], protocol: str = "TCP", port: int = PORT) -> Listener:
    endpoints = tuple(node.endpoint for node in nodes)
    return Listener(address, port, "UDP" if protocol == "UDP" else "TCP", endpoints, check=10256)


@rule("LB-7-ports", "LB-16-key")
async def test_tcp_and_udp_share_a_port_number(world: World) -> None:
    nodes, address = await world.nodes(2), world.address()

    assert await world.serve(listener(address, nodes), listener(address, nodes, "UDP")) == {}

    assert await greeting(address, PORT) in {"n1", "n2"}
    assert (await datagram(address, PORT) or b"").split()[0] in {b"n1", b"n2"}


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
        # A hundred at a time, as backlogs are short.
        for _ in range(11):
            talks = [open_connections.enter_async_context(talk(address, PORT)) for _ in range(100)]
            assert {one.name for one in await asyncio.gather(*talks)} == {"n1", "n2"}


@pytest.mark.parametrize("size", [pytest.param(n, id=f"LB-11-11-{n}-bytes") for n in (1, 9000, 60000)])
async def test_large_datagrams_pass_both_ways(world: World, size: int) -> None:
    nodes, address = await world.nodes(1), world.address()
    await world.serve(listener(address, nodes, "UDP"))

    assert await datagram(address, PORT, b"x" * size) == b"x" * size


@rule("LB-7-ranges", "LB-15-8", "LB-11-6")
async def test_who_may_not_come_sees_not_one_byte(world: World) -> None:
    nodes, address = await world.nodes(1), world.address()
    only = ("127.1.0.0/16", " 127.2.0.7/32", "127.1.2.0/24")
    tcp = replace(listener(address, nodes), allowed=only)
    udp = replace(listener(address, nodes, "UDP"), allowed=only)

    assert await world.serve(tcp, udp) == {}

    assert await greeting(address, PORT, "127.1.9.9") == "n1"
    assert await greeting(address, PORT, "127.2.0.7") == "n1"
    assert await greeting(address, PORT, "127.2.0.8") == ""
    assert await datagram(address, PORT, source="127.1.9.9")
    assert await datagram(address, PORT, source="127.2.0.8", patience=0.3) is None
    counted = await world.edge.traffic()
    assert counted[tcp.name].turned_away >= 1
    assert counted[udp.name].turned_away == 1


@rule("LB-7-ranges")
async def test_ranges_of_no_address_let_nobody_in(world: World) -> None:
    nodes, address = await world.nodes(1), world.address()
    tcp = replace(listener(address, nodes), allowed=())
    udp = replace(listener(address, nodes, "UDP"), allowed=())

    assert await world.serve(tcp, udp) == {}

    assert await greeting(address, PORT) == ""
    assert await datagram(address, PORT, patience=0.3) is None


@pytest.mark.parametrize(
    ("allowed", "reached"),
    [
        pytest.param(("::1/128",), "n1", id="LB-7-ranges-ipv6-allowed"),
        pytest.param(("fd00::/8",), "", id="LB-7-ranges-ipv6-denied"),
    ],
)
async def test_ranges_hold_for_ipv6(world: World, allowed: tuple[str, ...], reached: str) -> None:
    tcp, udp = await _free_ports_of_ipv6(), await _free_ports_of_ipv6()
    node = await Node("n1", "::1", port=udp, check=tcp).start()
    try:
        port = await _free_ports_of_ipv6()
        one = Listener("::1", port, "TCP", (node.endpoint,), check=tcp, allowed=allowed)
        assert await world.serve(one, replace(one, protocol="UDP")) == {}

        assert await greeting("::1", port) == reached
        answer = await datagram("::1", port, patience=5 if reached else 0.3)
        assert (answer or b"").decode().partition(" ")[0] == reached
    finally:
        await node.stop()


@rule("LB-7-families", "LB-15-10")
async def test_each_family_has_backends_of_its_own(world: World) -> None:
    (four,), address = await world.nodes(1), world.address()
    check, port = await _free_ports_of_ipv6(), await _free_ports_of_ipv6()
    six = await Node("six", "::1", port=port, check=check).start()
    try:
        outside = await _free_ports_of_ipv6()
        problems = await world.serve(
            listener(address, [four], port=outside),
            Listener("::1", outside, "TCP", (six.endpoint,), check=check),
        )

        assert problems == {}
        assert await greeting(address, outside) == "n1"
        assert await greeting("::1", outside) == "six"
    finally:
        await six.stop()


@rule("LB-7-affinity", "LB-15-9", "LB-11-6")
async def test_a_client_stays_with_its_node_over_tcp_and_udp(world: World) -> None:
    nodes, address = await world.nodes(10), world.address()
    for node in nodes:
        # As with node ports, TCP and UDP go to different ports.
        node.port = 30080
    one = replace(listener(address, nodes), affinity=True)
    await world.serve(one, replace(one, protocol="UDP"))
    clients = [f"127.9.{i // 250}.{i % 250 + 1}" for i in range(500)]

    before = {c: await greeting(address, PORT, c) for c in clients}
    assert {c: await greeting(address, PORT, c) for c in clients[:50]} == {c: before[c] for c in clients[:50]}
    for c in clients[:50]:
        assert (await datagram(address, PORT, source=c) or b"").decode().partition(" ")[0] == before[c]
    assert min(Counter(before.values()).values()) > 20

    rest = replace(one, endpoints=one.endpoints[1:])
    await world.serve(rest, replace(rest, protocol="UDP"))
    stayed = [c for c in clients if before[c] != "n1"]
    after = {c: await greeting(address, PORT, c) for c in stayed}

    assert "n1" not in after.values()
    assert sum(after[c] != before[c] for c in stayed) <= len(clients) * 0.05


@rule("LB-7-affinity")
async def test_tcp_and_udp_agree_though_their_node_ports_differ(world: World) -> None:
    nodes, address = await world.nodes(5), world.address()
    others = [await Node(n.name, n.address, port=30081, check=10257).start() for n in nodes]
    try:
        tcp = replace(listener(address, nodes), affinity=True)
        udp = replace(listener(address, others, "UDP"), affinity=True)
        await world.serve(tcp, udp)

        for i in range(1, 41):
            name = await greeting(address, PORT, f"127.9.9.{i}")
            answer = await datagram(address, PORT, source=f"127.9.9.{i}")
            assert (answer or b"").decode().partition(" ")[0] == name
    finally:
        for other in others:
            await other.stop()


@rule("LB-7-local")
async def test_nodes_without_endpoints_never_get_traffic(world: World) -> None:
    nodes, address = await world.nodes(3), world.address()
    for node in nodes[1:]:
        node.healthy = False
    await world.serve(listener(address, nodes))

    assert {await greeting(address, PORT) for _ in range(30)} == {"n1"}


@rule("LB-7-local", "LB-15-13")
async def test_without_a_healthy_node_nobody_gets_traffic(world: World) -> None:
    nodes, address = await world.nodes(2), world.address()
    for node in nodes:
        node.healthy = False
    assert await world.serve(listener(address, nodes)) == {}

    assert await greeting(address, PORT) == ""
    health = await world.edge.health()
    assert [(h.name, h.healthy) for h in health[listener(address, nodes).name]] == [
        ("n1", False),
        ("n2", False),
    ]


@rule("LB-7-draining", "LB-7-cluster")
async def test_a_draining_node_keeps_the_old_and_gets_nothing_new(world: World) -> None:
    nodes, address = await world.nodes(2), world.address()
    await world.serve(listener(address, nodes))
    async with talk(address, PORT) as before:
        draining = next(node for node in nodes if node.name == before.name)
        draining.healthy = False

        async def left() -> bool:
            return not any(
                h.healthy
                for hs in (await world.edge.health()).values()
                for h in hs
                if h.name == draining.name
            )

        await eventually(left)

        assert await before.echo()
        assert draining.name not in {await greeting(address, PORT) for _ in range(20)}

        draining.healthy = True

        async def back() -> bool:
            return await greeting(address, PORT) == draining.name

        await eventually(back)


@rule("LB-7-local")
async def test_pods_move_before_their_new_node_was_asked(world: World) -> None:
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
    greeted = [await greeting(address, PORT) for _ in range(20)]
    tried.set()

    while greeted[-1] != "n2":
        greeted.append(await greeting(address, PORT))
    assert "" not in greeted


@pytest.mark.parametrize(
    ("number", "begin"),
    [
        pytest.param(1, b"PROXY TCP4 127.8.8.8 ", id="LB-7-ports-proxy-v1"),
        pytest.param(2, b"\r\n\r\n\x00\r\nQUIT\n\x21\x11", id="LB-7-ports-proxy-v2"),
    ],
)
async def test_nodes_learn_of_clients_by_the_proxy_protocol(
    world: World, number: Literal[1, 2], begin: bytes
) -> None:
    (node,), address = await world.nodes(1), world.address()
    node.announced = True
    await world.serve(replace(listener(address, [node]), proxy_protocol=number))
    node.headers.clear()

    assert await greeting(address, PORT, "127.8.8.8") == "n1"

    assert node.headers[0].startswith(begin)
    if number == 2:
        assert bytes([127, 8, 8, 8]) in node.headers[0]
    assert node.malformed == []


async def test_connections_that_say_nothing_end_after_the_idle_timeout(world: World) -> None:
    nodes, address = await world.nodes(1), world.address()
    await world.serve(replace(listener(address, nodes), idle_timeout=0.3))

    async with talk(address, PORT) as one:
        assert await soon(one.reader.read()) == b""


async def test_connections_beyond_the_limit_are_closed(world: World) -> None:
    nodes, address = await world.nodes(1), world.address()
    one = replace(listener(address, nodes), max_connections=2)
    await world.serve(one)

    async def none_open() -> bool:
        return (await world.edge.traffic())[one.name].active == 0

    await eventually(none_open)
    async with talk(address, PORT) as first, talk(address, PORT) as second:
        assert (first.name, second.name) == ("n1", "n1")
        assert await greeting(address, PORT) == ""
        assert await first.echo()
    await eventually(none_open)
    assert await greeting(address, PORT) == "n1"


@rule("LB-15-14", "LB-15-13", "LB-2-empty")
async def test_without_nodes_clients_do_not_hang(world: World) -> None:
    address = world.address()

    assert await world.serve(listener(address, []), listener(address, [], "UDP")) == {}

    async with asyncio.timeout(20):  # one that hangs does so until its idle timeout, an hour
        assert await greeting(address, PORT) == ""


@rule("LB-7-ports")
async def test_three_hundred_ports_of_one_load_balancer(world: World) -> None:
    nodes, address = await world.nodes(2), world.address()

    problems = await world.serve(*(listener(address, nodes, port=7000 + i) for i in range(300)), patience=60)

    assert problems == {}
    assert all([await greeting(address, 7000 + i) for i in range(300)])


@rule("LB-15-7")
async def test_a_silent_node_delays_only_by_the_checks_timeout(world: World) -> None:
    nodes, address, silent = await world.nodes(3), world.address(), world.address()
    dropped = Silent(silent, 30080, 10256)
    try:
        endpoints = [*nodes, Node("silent", silent)]
        assert await world.serve(listener(address, endpoints), patience=20) == {}
        assert {await greeting(address, PORT) for _ in range(20)} <= {"n1", "n2", "n3"}
    finally:
        dropped.close()


async def _free_ports_of_ipv6() -> int:
    server = await asyncio.start_server(lambda r, w: None, "::1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    return port
