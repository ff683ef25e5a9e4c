"""Changes under traffic: what goes on, and what is cut."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from tests.servers.envoy.clients import counting, flow, greeting, talk
from tests.servers.envoy.nodes import Node, Silent
from tests.servers.envoy.test_serving import PORT, listener
from tests.servers.envoy.world import World, balancer
from tests.support.rules import rule
from tests.support.running import eventually, soon
from workers.loadbalancer.envoy import bootstrap, resources
from workers.loadbalancer.envoy.attachments import Running
from workers.loadbalancer.envoy.process import Processes


@rule("LB-15-4", "LB-11-1")
async def test_nodes_come_and_go_and_no_connection_fails(world: World) -> None:
    nodes, address = await world.nodes(4), world.address()
    await world.serve(listener(address, nodes[:2]))

    async with talk(address, PORT) as before, counting(address, PORT) as count:
        await count.further(30)
        await world.serve(listener(address, nodes[:3]))
        await count.further(60)
        assert count.reached["n3"] > 0
        await world.serve(listener(address, nodes[2:]))
        reached = count.reached.copy()
        await count.further(60)
        assert await before.echo()

    assert count.failed == []
    late = count.reached - reached
    assert late["n1"] + late["n2"] <= 4  # those that were under way
    assert count.reached["n4"] > 0


@rule("LB-11-3", "LB-15-4")
async def test_ports_come_and_go_and_no_connection_fails(world: World) -> None:
    nodes, address = await world.nodes(2), world.address()
    stays, comes = listener(address, nodes), listener(address, nodes, port=PORT + 1)
    await world.serve(stays)

    async with talk(address, PORT) as first, counting(address, PORT) as count:
        await world.serve(stays, comes)
        assert await greeting(address, PORT + 1)
        async with talk(address, PORT + 1) as second:
            await world.serve(stays)
            await count.further(50)
            assert await second.echo()  # its port is gone, and it may end in peace
            await eventually(lambda: _refused(address, PORT + 1))
        assert await first.echo()

    assert count.failed == []


@rule("LB-15-4")
async def test_source_ranges_and_affinity_change_and_no_connection_fails(world: World) -> None:
    nodes, address = await world.nodes(2), world.address()
    one = listener(address, nodes)
    await world.serve(one)

    async with talk(address, PORT) as before, counting(address, PORT) as count:
        for changed in (
            replace(one, affinity=True),
            replace(one, affinity=True, allowed=("127.0.0.0/8",)),
            replace(one, allowed=("127.0.0.0/8",)),
            one,
        ):
            assert await world.serve(changed) == {}
            await count.further(40)
            assert await before.echo()

    assert count.failed == []


@rule("LB-15-5", "LB-15-6")
async def test_udp_flows_survive_changes_of_other_nodes(world: World) -> None:
    nodes, address = await world.nodes(4), world.address()
    await world.serve(listener(address, nodes[:3], "UDP"))

    async with flow(address, PORT) as one:
        before = await one.ask()  # names the port from which Envoy speaks for this flow
        assert before is not None
        its = before.split()[0].decode()
        await world.serve(listener(address, nodes, "UDP"))
        assert await one.ask() == before
        await world.serve(listener(address, [n for n in nodes if n.name in (its, "n4")], "UDP"))
        assert await one.ask() == before
        await world.serve(listener(address, [nodes[3]], "UDP"))

        async def moved() -> bool:
            return (await one.ask() or b"").startswith(b"n4 ")

        await eventually(moved)


@pytest.mark.parametrize(
    "affinity", [pytest.param(False, id="LB-15-15-random"), pytest.param(True, id="LB-15-15-affinity")]
)
async def test_a_node_that_dies_costs_no_connection(world: World, affinity: bool) -> None:
    nodes, address = await world.nodes(4), world.address()
    await world.serve(replace(listener(address, nodes), affinity=affinity))

    for node in nodes[:3]:
        # Not under traffic: connections that the node has already taken die with it.
        await node.stop()
        async with counting(address, PORT) as count:
            await count.further(40)
        assert count.failed == []
        assert node.name not in count.reached


@rule("LB-15-15")
async def test_a_node_that_falls_silent_costs_no_connection(world: World) -> None:
    nodes, address = await world.nodes(2), world.address()
    await world.serve(listener(address, nodes))
    await nodes[0].stop()
    silent = Silent(nodes[0].address, 30080, 10256)
    try:
        async with asyncio.timeout(60):
            found = await asyncio.gather(*(greeting(address, PORT) for _ in range(30)))
    finally:
        silent.close()

    assert set(found) == {"n2"}


@rule("LB-2-idempotent")
async def test_the_same_again_writes_nothing(world: World, tmp_path: Path) -> None:
    nodes, address = await world.nodes(2), world.address()
    one = balancer(listener(address, nodes), listener(address, nodes, "UDP"))
    assert await world.edge.write([one]) is True

    files = {f: f.stat().st_mtime_ns for f in (tmp_path / "envoys" / "edge" / "1").glob("*.json")}
    again = balancer(*(replace(x, endpoints=tuple(reversed(x.endpoints))) for x in reversed(one.listeners)))

    assert await world.edge.write([again]) is False
    assert {f: f.stat().st_mtime_ns for f in files} == files


@rule("LB-15-2")
async def test_a_port_in_use_is_reported_and_harms_nobody(world: World) -> None:
    nodes, address = await world.nodes(1), world.address()
    other = balancer(listener(world.address(), nodes), name="other")
    one = balancer(listener(address, nodes), listener(address, nodes, port=PORT + 1))
    with socket.socket() as holder:
        holder.bind((address, PORT))
        holder.listen()
        await world.edge.write([one, other])
        found = {s.load_balancer.ref.name: s async for s in world.edge.wait_applied([one, other])}

        assert found["other"].problems == {}
        assert found["web"].problems == {
            "8080/TCP": f"another process of this host holds port 8080/TCP of {address}"
        }  # fmt: skip
        assert found["web"].occupied == {address: ("8080/TCP",)}
        assert await greeting(address, PORT + 1) == "n1"

    assert await world.edge.write([one, other]) is False
    assert await world.edge.write([one, other], retry=True) is True  # as its port may have become free
    told = {s.load_balancer.ref.name: s.problems async for s in world.edge.wait_applied([one, other])}

    assert told == {"web": {}, "other": {}}
    assert await greeting(address, PORT) == "n1"
    assert await world.edge.write([one, other], retry=True) is False


async def test_what_does_not_settle_is_told_what_it_waits_for(world: World) -> None:
    silent = world.address()
    await world.serve(listener(world.address(), []))
    dropped = Silent(silent, 30080, 10256)

    async def is_told() -> bool:
        """Once Envoy reads it in time, which takes it longer on a busy machine."""
        one = balancer(listener(world.address(), [Node("silent", silent)]))
        await world.edge.write([one])
        (told,) = [s async for s in world.edge.wait_applied([one], patience=0.5)]
        return told.problems == {"8080/TCP": "Envoy waits for the first health check of its endpoints"}

    try:
        await eventually(is_told)
    finally:
        dropped.close()


@rule("LB-7-families")
async def test_hundreds_at_once_settle_one_by_one(world: World) -> None:
    nodes = await world.nodes(2)
    wanted = [balancer(listener(world.address(), nodes), name=f"web-{i}") for i in range(200)]

    await world.edge.write(wanted)
    settled = [s async for s in world.edge.wait_applied(wanted, patience=60)]

    assert len(settled) == 200
    assert [s for s in settled if s.problems] == []
    counted = await world.edge.traffic()
    assert len(counted) == 200


@rule("LB-11-8")
async def test_more_udp_ports_than_files_may_be_watched(world: World) -> None:
    nodes, address = await world.nodes(1), world.address()
    listeners = [listener(address, nodes, "UDP", port=9000 + i) for i in range(200)]

    assert await world.serve(*listeners, patience=60) == {}

    async with flow(address, 9199) as one:
        assert (await one.ask() or b"").startswith(b"n1 ")


async def _refused(address: str, port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError):
        _, writer = await soon(asyncio.open_connection(address, port))
        writer.close()
        return False
    return True


async def test_what_is_new_among_many_is_asked_often_for_a_while(world: World, attachment: Processes) -> None:
    nodes, address = await world.nodes(2), world.address()
    many = [listener(address, nodes, port=20_000 + number) for number in range(200)]
    await world.serve(*many)
    (envoy,) = await attachment.found("edge")

    async def usual() -> bool:
        return await _least_interval(envoy) == resources.check_interval(400)

    await eventually(usual)
    await world.serve(*many, listener(address, nodes))
    assert await _least_interval(envoy) < resources.check_interval(402)
    await eventually(usual)


async def _least_interval(envoy: Running) -> int:
    """Milliseconds for which Envoy has to leave an endpoint alone."""
    [layer] = orjson.loads(await envoy.read(bootstrap.RUNTIME) or b"")["resources"]
    return int(layer["layer"]["health_check"]["min_interval"])
