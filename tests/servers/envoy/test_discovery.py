"""Envoys get their configuration over a stream, from one edge after the other."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest
import pytest_asyncio
from grpc import aio

from tests.servers.envoy.clients import counting, datagram, greeting, serves, talk
from tests.servers.envoy.world import World, balancer, configured, listener, problems, tracked
from tests.support import envoyprogram
from tests.support.rules import rule
from tests.support.running import eventually, soon
from windowbox.clients.xds import messages
from windowbox.clients.xds.server import Resource
from windowbox.errors import Unreachable
from windowbox.models.loadbalancers import Endpoint, Listener, LoadBalancer
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edge import edges
from workers.loadbalancer.edge.edges import Edges
from workers.loadbalancer.envoy import admin, bootstrap, resources
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.delta import Kind, Resources
from workers.loadbalancer.envoy.discovery import Discovery
from workers.loadbalancer.envoy.process import Process, Processes
from workers.loadbalancer.tracked import Tracked

ENDPOINTS = (Endpoint("127.0.0.2", 1, "n1"), Endpoint("127.0.0.3", 65535, "n2"))
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"check": 10256, "proxy_protocol": 1},
    {"affinity": True},
    {"allowed": ("10.0.0.0/8", "127.0.0.1/32")},
    {"allowed": ()},
    {"proxy_protocol": 2, "check": 10256, "affinity": True},
    {"idle_timeout": 90.5, "max_connections": 300},
    {"vacant": True, "idle_timeout": 0.25},
)
_DEFAULTS = ("TCP", "V1", 0)
"""Zeros, also those of enums, which Envoy does not show."""
_METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"


def variants(address: str) -> list[Listener]:
    """Listeners of both protocols, with all options."""
    both = (Listener(address, 1000, "TCP", ENDPOINTS), Listener(address, 2000, "UDP", ENDPOINTS))
    return [
        replace(one, port=one.port + number, **changes)
        for one, (number, changes) in itertools.product(both, enumerate(VARIANTS))
    ]


@rule("LB-15-1")
async def test_envoy_has_what_was_written(world: World) -> None:
    all = variants(world.address())
    await world.serve(*all)
    dump = orjson.loads(await (await world.envoy()).ask("/config_dump?include_eds"))
    made = configured([balancer(*all)])
    for kind, meant, found in (
        (Kind.LISTENERS, made.listeners, _listeners(dump)),
        (Kind.CLUSTERS, made.clusters, _clusters(dump)),
    ):
        assert len(meant) == len(all)
        assert {n: _normal(messages.fields(kind, one.content)) for n, one in meant.items()} == found


@rule("LB-15-2")
async def test_one_bad_resource_of_many_is_named_and_harms_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of each kind: Envoy refuses the whole response, and the good ones are sent again without it."""
    nodes, addresses = await world.nodes(1), [world.address() for _ in range(12)]
    many = [balancer(listener(address, nodes), name=f"web-{n}") for n, address in enumerate(addresses)]
    bad = {
        kind: many[n].listeners[0].name
        for n, kind in ((2, Kind.CLUSTERS), (5, Kind.ENDPOINTS), (8, Kind.LISTENERS))
    }
    genuine = resources.Configuration.resources

    def spoilt(self: resources.Configuration, *, often: bool = False) -> dict[Kind, Resources]:
        found = dict(genuine(self, often=often))
        for kind, name in bad.items():
            bad_one = Resource("bad", _spoilt(kind, found[kind][name].content))
            found[kind] = Tracked({**found[kind], name: bad_one})
        return found

    monkeypatch.setattr(resources.Configuration, "resources", spoilt)
    await world.edge.write(tracked(many))
    found = {one.load_balancer.ref.name: one.problems async for one in world.edge.wait_applied(many)}
    assert {name for name, said in found.items() if said} == {"web-2", "web-5", "web-8"}
    for name in ("web-2", "web-5", "web-8"):
        assert "Envoy refuses" in found[name]["8080/TCP"]
    for number, address in enumerate(addresses):
        if number not in (2, 5, 8):
            assert await greeting(address) == "n1"
    monkeypatch.undo()
    mended = [*many, balancer(listener(world.address(), nodes), name="one-more")]
    await world.edge.write(tracked(mended))
    assert [one.problems async for one in world.edge.wait_applied(mended)] == [{}] * 13


@rule("LB-11-9", "LB-15-12")
async def test_an_edge_that_dies_between_updates_cuts_nothing(bare: World) -> None:
    nodes, places = await bare.nodes(1), [bare.address() for _ in range(60)]
    first = balancer(listener(places[0], nodes), name="first")
    many = [first, *(balancer(listener(place, nodes), name=place) for place in places[1:])]
    async with bare.keeping():
        await bare.serve(*first.listeners)
    async with talk(places[0]) as before, counting(places[0]) as count:
        for moment in (0.0, 0.005, 0.02):
            async with bare.keeping() as edge:
                await edge.write(tracked(many))
                await asyncio.sleep(moment)  # it dies in the middle of this update
            assert await before.echo()
        async with bare.keeping() as edge:
            await edge.write(tracked(many))
            assert [one.problems async for one in edge.wait_applied(many)] == [{}] * 60
            assert await greeting(places[-1]) == "n1"
            await edge.write(tracked([first]))
            assert await edge.wait_accepted()
            assert not await serves(places[-1])
        await count.further(20)
        assert await before.echo()
    assert count.failed == []


async def test_what_the_former_edge_left_half_done_blocks_nothing(bare: World) -> None:
    """A cluster that waits for its endpoints makes Envoy answer nothing about clusters."""
    nodes, place, other = await bare.nodes(1), bare.address(), bare.address()
    first, left, wanted = (balancer(listener(one, nodes), name=one) for one in (bare.address(), place, other))
    async with bare.keeping() as edge:
        await edge.write(tracked([first]))
        assert await problems(edge, first) == {}
        session = bare.discovery.session("edge", 1)
        made = configured([first, left]).resources()
        del session.delta._wanted[Kind.ENDPOINTS]  # it dies before it sends these
        session.want({Kind.CLUSTERS: made[Kind.CLUSTERS]})
        envoy = await bare.envoy()

        async def warms() -> bool:
            return bool(await admin.warming(envoy))

        await eventually(warms)
    async with bare.keeping() as edge:
        await edge.write(tracked([wanted]))
        assert await problems(edge, wanted) == {}
        assert await greeting(other) == "n1"


async def test_an_envoy_leaves_a_hanging_edge_for_the_next(bare: World) -> None:
    """Its side of the stream stays open; the next edge listens at another socket."""
    nodes, place = await bare.nodes(1), bare.address()
    async with bare.keeping():
        await bare.serve(one := listener(place, nodes))
    hanging = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _HANGING, str(bare.attachment.discovery_folder)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert hanging.stdout
        assert await soon(hanging.stdout.readline())
        os.kill(hanging.pid, signal.SIGSTOP)
        async with bare.keeping() as successor:
            both = [balancer(one), more := balancer(listener(bare.address(), nodes), name="more")]
            await successor.write(tracked(both))
            assert await problems(successor, more, 60) == {}
    finally:
        hanging.kill()
        await hanging.wait()


_HANGING = """
import asyncio, sys
from pathlib import Path
from workers.loadbalancer.envoy.discovery import Discovery

async def main():
    discovery = Discovery()
    session = discovery.session("edge", 1)
    async with discovery.serving(Path(sys.argv[1])):
        await discovery.begin()
        await session.change().wait()
        print("an Envoy has come", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest_asyncio.fixture
async def channel(world: World) -> AsyncIterator[Callable[[], Any]]:
    """Streams to the socket of the edge, as anybody of its user can open them."""
    path = world.attachment.discovery_folder / "ads.sock"
    async with aio.insecure_channel(f"unix:{path}") as opened:
        yield lambda: opened.stream_stream(_METHOD)()


async def test_a_bad_client_of_the_socket_is_turned_away_and_harms_no_envoy(
    world: World, channel: Callable[[], Any]
) -> None:
    folder = world.attachment.discovery_folder
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(one.stat().st_mode & 0o777 == 0o600 for one in folder.iterdir())

    request = messages.type_of("envoy.service.discovery.v3.DeltaDiscoveryRequest")

    def asked(node: str, kind: str) -> bytes:
        return messages.encoded(request(node={"id": node}, type_url=messages.type_url(kind)))

    bad = {
        "another stream of the same Envoy": asked("edge/1", Kind.CLUSTERS),
        "an unknown Envoy": asked("nobody/7", Kind.CLUSTERS),
        "no message": b"\xff\xff\xff",
        "too large": bytes(20 << 20),
        "nothing": b"",
    }
    nodes = await world.nodes(1)
    assert await world.serve(listener(world.address(), nodes)) == {}  # Envoy has its stream
    for what, sent in bad.items():
        call = channel()
        with contextlib.suppress(aio.AioRpcError):
            await soon(call.write(sent))
        status = await soon(call.code())
        assert status in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.RESOURCE_EXHAUSTED), what
        assert await world.serve(listener(world.address(), nodes)) == {}
    silent = [channel() for _ in range(5)]  # says nothing
    _, writer = await asyncio.open_unix_connection(str(folder / "ads.sock"))
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await world.serve(listener(world.address(), nodes)) == {}
    writer.close()
    for call in silent:
        call.cancel()


async def test_programs_start_beside_a_stream(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    nodes = await world.nodes(1)
    for _ in range(20):
        assert await world.serve(listener(world.address(), nodes)) == {}
        # uvloop forks, and gRPC can prepare for that: then some of these children crash.
        child = await asyncio.create_subprocess_exec("true")
        assert await soon(child.wait()) == 0
    assert "fork" not in capfd.readouterr().err


async def test_without_an_envoy_nothing_listens(bare: World) -> None:
    async with (discovery := Discovery()).serving(folder := bare.attachment.discovery_folder):
        assert not folder.exists()
        await asyncio.gather(discovery.begin(), discovery.begin())
        assert len({one.resolve() for one in folder.iterdir()}) == 1


async def test_an_unknown_kind_ends_the_stream(bare: World) -> None:
    discovery = Discovery()
    discovery.session("edge", 1)
    request = messages.type_of("envoy.service.discovery.v3.DeltaDiscoveryRequest")
    async with discovery.serving(bare.attachment.discovery_folder):
        await discovery.begin()
        path = bare.attachment.discovery_folder / "ads.sock"
        async with aio.insecure_channel(f"unix:{path}") as opened:
            call: Any = opened.stream_stream(_METHOD)()
            await call.write(
                messages.encoded(request(node={"id": "edge/1"}, type_url="type.googleapis.com/x"))
            )
            with pytest.raises(aio.AioRpcError, match="asks for x"):
                await soon(call.read())


@rule("LB-15-12")
async def test_an_envoy_with_files_of_the_version_before_is_replaced(bare: World) -> None:
    place, one = await _served_from_files(bare)
    async with talk(place) as before, counting(place) as count, bare.keeping() as edge:
        assert await edge.outdated()
        assert await greeting(place) == "n1"
        await edge.write(tracked([one]))
        await soon(edge.replace())
        assert await before.echo()
        assert await problems(edge, one) == {}
        assert await bare.generations() == [1, 2]
        await count.further(50)
        assert not await edge.outdated()
        await eventually(lambda: datagram(place))
    assert count.failed == []


class Reluctant(Processes):
    """Cannot start an Envoy at first."""

    failures = 0

    async def start(self, order: Order) -> Process:
        if self.failures:
            self.failures -= 1
            raise Unreachable("the disk is full")
        return await super().start(order)


@rule("LB-15-12")
async def test_an_envoy_that_could_not_be_replaced_is_replaced_later(
    bare: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edges, "_RENEW_AGAIN", 0.01)
    bare.attachment = reluctant = Reluctant(tmp_path / "envoys", program=envoyprogram.envoy(tmp_path))
    _, one = await _served_from_files(bare)
    reluctant.failures = 2
    discovery = Discovery()
    try:
        async with discovery.serving(reluctant.discovery_folder), asyncio.TaskGroup() as group:
            kept = Edges(reluctant, discovery, LoadBalancerSettings(), group, lambda: None)
            await kept.write(tracked([one]))
            await eventually(lambda: bare.are(2))
            await kept.write(tracked([]))
            await bare.end_all()
            raise _Done
    except* _Done:
        assert reluctant.failures == 0


class _Done(Exception):
    """Ends the tasks of a group."""


def _spoilt(kind: Kind, content: bytes) -> bytes:
    """A resource that Envoy refuses."""
    found = messages.type_of(kind).FromString(content)
    match kind:
        case Kind.CLUSTERS:
            found.lb_policy = 6  # CLUSTER_PROVIDED, which such clusters must not have
        case Kind.ENDPOINTS:
            found.endpoints[0].lb_endpoints[0].endpoint.address.socket_address.address = "no address"
        case _:
            found.address.socket_address.address = "no address"
    return messages.encoded(found)


async def _served_from_files(bare: World) -> tuple[str, LoadBalancer]:
    """An address where an Envoy of the version before serves a node over TCP and UDP, by its files."""
    nodes, place = await bare.nodes(1), bare.address()
    one = balancer(listener(place, nodes), listener(place, nodes, "UDP"))
    made = configured([one])
    clusters = []
    for name, content in made.clusters.items():
        found = messages.fields(Kind.CLUSTERS, content.content)
        del found["eds_cluster_config"], found["ignore_health_on_host_removal"]
        endpoints = messages.fields(Kind.ENDPOINTS, made.endpoints[name].content)
        clusters.append(found | {"type": "STATIC", "load_assignment": endpoints})
    listeners = [messages.fields(Kind.LISTENERS, one.content) for one in made.listeners.values()]
    written = orjson.loads(bootstrap.bootstrap("windowbox", ".", "nowhere.sock"))
    written["dynamic_resources"] = {
        f"{kind}_config": {"resource_api_version": "V3", "path_config_source": {"path": f"./{kind}.pb"}}
        for kind in ("cds", "lds")
    }
    del written["layered_runtime"], written["static_resources"]
    files = {
        "envoy.json": orjson.dumps(written),
        "cds.pb": _file(Kind.CLUSTERS, clusters),
        "lds.pb": _file(Kind.LISTENERS, listeners),
        "owners.json": resources.owners_file(made.owners),
    }
    await bare.attachment.start(Order(name="edge", generation=1, files=files))
    await eventually(lambda: serves(place))
    return place, one


def _file(kind: Kind, entries: list[dict[str, Any]]) -> bytes:
    """A DiscoveryResponse: its resources are a field of the same number as in the delta response."""
    made = messages.type_of("google.protobuf.Any")
    found = b""
    for one in entries:
        content = messages.encoded(messages.message(kind, one))
        packed = messages.encoded(made(type_url=messages.type_url(kind), value=content))
        size = bytes([len(packed) & 0x7F | 0x80, len(packed) >> 7 & 0x7F | 0x80, len(packed) >> 14])
        found += b"\x12" + size + packed
    return b"\x0a\x011" + found


def _listeners(dump: dict[str, Any]) -> dict[str, Any]:
    (found,) = (one for one in dump["configs"] if one["@type"].endswith("ListenersConfigDump"))
    all = (one["active_state"]["listener"] for one in found["dynamic_listeners"])
    return {one["name"]: _normal(one) for one in all}


def _clusters(dump: dict[str, Any]) -> dict[str, Any]:
    (found,) = (one for one in dump["configs"] if one["@type"].endswith("ClustersConfigDump"))
    all = (one["cluster"] for one in found["dynamic_active_clusters"])
    return {one["name"]: _normal(one) for one in all}


def _normal(value: Any) -> Any:
    """Without what JSON can say in two ways."""
    if isinstance(value, dict):
        found = {key: _normal(one) for key, one in value.items() if key != "@type" and one not in _DEFAULTS}
        return found.get("value", found) if found.keys() <= {"value"} else found
    if isinstance(value, list):
        return [_normal(one) for one in value]
    if isinstance(value, str) and re.fullmatch(r"[0-9.]+s?", value):
        return float(value.removesuffix("s")) if value.count(".") < 2 else value
    return value
