"""Open ports of the node simulator, as clients see them; tests steer it through the API."""

from __future__ import annotations

import asyncio
import socket

import pytest

from sandbox.simulated import nodes
from tests.host.simulated.world import (
    World,
    answered,
    asked,
    becomes,
    health,
    node_port,
    outcome,
)
from tests.support.cases import cases
from tests.support.running import eventually, soon
from windowbox.models.refs import ENDPOINT_SLICES, NODES, SERVICES

TAINTED = {"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}}


async def test_each_node_greets_with_name_and_peer(world: World) -> None:
    _, port = await world.served()
    await becomes("simulated-1", world.first, port)
    assert await outcome(world.second, port) == "simulated-2"
    reader, writer = await asyncio.open_connection(world.first, port)
    host, source = writer.get_extra_info("sockname")
    assert await soon(reader.readline()) == f"node=simulated-1 peer={host}:{source}\n".encode()
    writer.close()


async def test_nodes_echo_until_the_client_ends(world: World) -> None:
    _, port = await world.served()
    await becomes("simulated-1", world.first, port)
    reader, writer = await asyncio.open_connection(world.first, port)
    await soon(reader.readline())
    sent = bytes(range(256)) * 8192

    async def send() -> None:
        writer.write(sent)
        await writer.drain()
        writer.write_eof()

    _, back = await soon(asyncio.gather(send(), reader.read(-1)))
    assert back == sent
    writer.close()


@pytest.mark.parametrize("size", [1, 9_000, 60_000])
async def test_each_datagram_is_answered_after_a_greeting(world: World, size: int) -> None:
    service = await world.service({"port": 53, "protocol": "UDP"})
    await world.endpoints(service, ["simulated-1"], protocol="UDP")
    data, port = b"x" * size, node_port(service)
    greeting, _, rest = (await answered(world.first, port, data)).partition(b"\n")
    assert greeting.startswith(b"node=simulated-1 peer=127.")
    assert rest == data


async def test_one_number_serves_both_protocols(world: World) -> None:
    service = await world.service(
        {"name": "tcp", "port": 53, "nodePort": 30153},
        {"name": "udp", "port": 53, "protocol": "UDP", "nodePort": 30153},
    )
    part = await world.endpoints(service, ["simulated-1"])
    ports = [{"name": "tcp", "port": 53}, {"name": "udp", "port": 53, "protocol": "UDP"}]
    await world.kube.delete(ENDPOINT_SLICES, "default", part.name)
    body = {**part.raw, "metadata": {"name": part.name, "labels": part.labels}, "ports": ports}
    await world.kube.create(ENDPOINT_SLICES, "default", body)
    await becomes("simulated-1", world.first, 30153)
    assert (await answered(world.first, 30153, b"?")).startswith(b"node=simulated-1")
    await world.drop(service)
    await becomes("refused", world.first, 30153)


async def test_a_service_without_ready_endpoints_refuses(world: World) -> None:
    service, port = await world.served()
    await becomes("simulated-1", world.first, port)
    for part in (await world.kube.page(ENDPOINT_SLICES)).items:
        if part["metadata"]["labels"].get("kubernetes.io/service-name") == service.name:
            await world.kube.delete(ENDPOINT_SLICES, "default", part["metadata"]["name"])
    await becomes("refused", world.first, port)
    await world.endpoints(service, ["simulated-1"], ready=False)
    marker = await world.served()  # earlier changes have been handled, too
    await becomes("simulated-1", world.first, marker[1])
    assert await outcome(world.first, port) == "refused"
    assert await asked(world.first, port, b"?") == "refused"


async def test_a_node_without_local_endpoints_drops(world: World) -> None:
    service, port = await world.served("simulated-2", externalTrafficPolicy="Local")
    check = service.spec["healthCheckNodePort"]
    await becomes("simulated-2", world.second, port)
    assert await outcome(world.first, port) == "dropped"
    reported = {"service": {"namespace": "default", "name": service.name}, "serviceProxyHealthy": True}
    assert await health(world.second, check) == (200, {**reported, "localEndpoints": 1})
    assert await health(world.first, check) == (503, {**reported, "localEndpoints": 0})
    await world.endpoints(service, ["simulated-1", "simulated-2"])
    await becomes("simulated-1", world.first, port)
    assert (await health(world.second, check))[1]["localEndpoints"] == 2
    await world.kube.merge(SERVICES, "default", service.name, {"spec": {"externalTrafficPolicy": "Cluster"}})
    await becomes("refused", world.first, check)


async def test_a_node_about_to_go_reports_it(world: World) -> None:
    assert (await health(world.first, 10256))[0] == 200
    await world.kube.merge(NODES, "", "simulated-1", TAINTED)
    await eventually(lambda: _has_health(world, 503))
    assert (await health(world.first, 10256))[1]["nodeEligible"] is False
    assert (await health(world.second, 10256))[0] == 200
    await world.kube.merge(NODES, "", "simulated-1", {"spec": {"taints": None}})
    await eventually(lambda: _has_health(world, 200))


async def _has_health(world: World, status: int) -> bool:
    return (await health(world.first, 10256))[0] == status


@cases(
    "behaviour tcp udp",
    ("hang", "hang", "silent", "dropped"),
    ("refuse", "refuse", "refused", "refused"),
    ("drop", "drop", "dropped", "dropped"),
)
async def test_a_node_misbehaves_while_it_is_annotated(
    world: World, behaviour: str, tcp: str, udp: str
) -> None:
    _, port = await world.served()
    datagrams = await world.service({"port": 53, "protocol": "UDP"})
    await world.endpoints(datagrams, ["simulated-1"], protocol="UDP")
    await becomes("simulated-1", world.first, port)
    await answered(world.first, node_port(datagrams), b"?")
    await world.behave("simulated-1", behaviour)
    try:
        await becomes(tcp, world.first, port)
        assert await outcome(world.second, port) == "simulated-2"

        async def as_reported() -> bool:
            return await asked(world.first, node_port(datagrams), b"?") == udp

        await eventually(as_reported)
        assert (await health(world.first, 10256))[0] == 0
    finally:
        await world.behave("simulated-1", None)
    await becomes("simulated-1", world.first, port)
    assert (await health(world.first, 10256))[0] == 200


async def test_established_connections_survive_their_port(world: World) -> None:
    service, port = await world.served()
    await becomes("simulated-1", world.first, port)
    reader, writer = await asyncio.open_connection(world.first, port)
    await soon(reader.readline())
    await world.drop(service)
    await becomes("refused", world.first, port)
    writer.write(b"still here\n")
    assert await soon(reader.readline()) == b"still here\n"
    writer.close()


async def test_a_port_passes_between_services(world: World) -> None:
    first, port = await world.served()
    await becomes("simulated-1", world.first, port)
    await world.drop(first)
    second = await world.service({"port": 80, "nodePort": port}, externalTrafficPolicy="Local")
    await world.endpoints(second, ["simulated-2"])
    await becomes("dropped", world.first, port)
    assert await outcome(world.second, port) == "simulated-2"


async def test_joining_nodes_are_served_and_leaving_ones_dropped(world: World) -> None:
    _, port = await world.served()
    await nodes.register(world.kube, 3, world.network)
    await becomes("simulated-3", world.address(3), port)
    await nodes.register(world.kube, 2, world.network)  # fewer than before: the last one goes
    await becomes("refused", world.address(3), port)
    assert await outcome(world.first, port) == "simulated-1"


async def test_a_port_in_use_is_opened_once_free(world: World) -> None:
    with socket.socket() as held:
        held.bind((world.first, 30777))
        held.listen()
        service = await world.service({"port": 80, "nodePort": 30777})
        await world.endpoints(service, ["simulated-1"])
        await becomes("simulated-2", world.second, 30777)
        assert await outcome(world.first, 30777) == "silent"
    await becomes("simulated-1", world.first, 30777)
    await world.drop(service)


async def test_nodes_registered_twice_keep_their_names_and_addresses(world: World) -> None:
    await nodes.register(world.kube, 2, world.network)
    found = (await world.kube.page(NODES)).items
    assert [node["metadata"]["name"] for node in found] == ["simulated-1", "simulated-2"]
    assert [node["status"]["addresses"][0]["address"] for node in found] == [world.first, world.second]
