"""Files in Protobuf's binary form, compared with the configuration that Envoy has read."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.servers.envoy.clients import datagram, greeting, serves, talk
from tests.servers.envoy.world import World, balancer, listener
from tests.support import envoyprogram
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.errors import Unreachable
from windowbox.models.loadbalancers import Endpoint, Listener, LoadBalancer
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edge import edges
from workers.loadbalancer.edge.edges import Edges
from workers.loadbalancer.envoy import bootstrap, protobuf, resources
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.process import Process, Processes

ENDPOINTS = (Endpoint("127.0.0.2", 1, "n1", unhealthy=True), Endpoint("127.0.0.3", 65535, "n2"))
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


def variants(address: str) -> list[Listener]:
    """Listeners of both protocols, with all options."""
    both = (Listener(address, 1000, "TCP", ENDPOINTS), Listener(address, 2000, "UDP", ENDPOINTS))
    return [
        replace(one, port=one.port + number, **changes)
        for one, (number, changes) in itertools.product(both, enumerate(VARIANTS))
    ]


@rule("LB-15-1")
async def test_envoy_reads_what_was_written(world: World) -> None:
    all = variants(world.address())
    await world.serve(*all)
    dump = orjson.loads(await (await world.envoy()).ask("/config_dump?include_eds"))
    written = await world.attachment.kept("edge")
    for file, found in ((bootstrap.LISTENERS, _listeners(dump)), (bootstrap.CLUSTERS, _clusters(dump))):
        meant = [protobuf.resource(entry) for entry in protobuf.entries(written[file])]
        assert len(meant) == len(all)
        assert {one["name"]: _normal(one) for one in meant} == found


def test_what_is_encoded_can_be_decoded() -> None:
    for one in variants("10.9.0.1"):
        made = resources.configuration([balancer(one)], folder="/f", eds=(one.name,))
        for entry in (made.listeners[one.name], made.clusters[one.name], made.endpoints[one.name]):
            assert protobuf.entry(protobuf.resource(entry)) == entry
            assert protobuf.entries(protobuf.response("x", entry)) == [entry]
            assert protobuf.name_of(entry) == one.name


@rule("LB-15-12")
async def test_an_envoy_with_json_files_is_replaced(bare: World) -> None:
    place, one = await _served_with_json(bare)
    changed = replace(one, listeners=(replace(one.listeners[0], idle_timeout=90.5), one.listeners[1]))
    async with bare.keeping() as edge:
        assert not await edge.write([one])
        assert await edge.outdated()
        await eventually(lambda: _greets(place))
        assert await edge.write([changed])
    async with bare.keeping() as edge:
        assert not await edge.write([changed]), "the next process reads what was written beside JSON"
        async with talk(place) as before:
            await edge.replace()
            assert await greeting(place) == "n1"
            assert await before.echo()
        await eventually(lambda: bare.are(2))
        assert await greeting(place) == "n1"


async def test_sockets_get_other_options_by_another_envoy(bare: World) -> None:
    """Beside old sockets, from which Envoy no longer reads, new ones would get half of the datagrams."""
    nodes, place = await bare.nodes(1), bare.address()
    one = balancer(udp := listener(place, nodes, "UDP"))
    changed = replace(one, listeners=(replace(udp, idle_timeout=90.5),))
    files = resources.configuration([one], folder=".", optionless=[udp.name]).files
    files = {bootstrap.BOOTSTRAP: bootstrap.bootstrap("."), **files}
    await bare.attachment.start(Order(name="edge", generation=1, files=files))

    async def all_answered() -> bool:
        return [await datagram(place) for _ in range(20)].count(None) == 0

    async with bare.keeping() as edge:
        assert await edge.write([changed])
        assert await edge.wait_accepted()
        assert await all_answered()
        assert await edge.outdated()
        await edge.replace()
        await eventually(lambda: bare.are(2))
        assert await all_answered()
        assert not await edge.outdated()
        assert not await edge.write([changed])


async def test_json_files_of_an_ended_envoy_are_served(bare: World) -> None:
    place, _ = await _served_with_json(bare)
    await bare.end_all()
    async with bare.keeping() as edge:
        assert not await edge.outdated()
        await eventually(lambda: _greets(place))


@rule("LB-15-12")
async def test_an_envoy_with_json_files_and_fixed_ports_is_restarted(bare: World) -> None:
    bare.attachment.fixed_ports = True
    place, one = await _served_with_json(bare)
    async with bare.keeping() as edge:
        assert not await edge.outdated()
        assert not await edge.write([one])
        await eventually(lambda: _greets(place))


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
    _, one = await _served_with_json(bare)
    reluctant.failures = 2
    try:
        async with asyncio.TaskGroup() as group:
            kept = Edges(reluctant, LoadBalancerSettings(), group, lambda: None)
            await kept.write({one.ref: one})
            await eventually(lambda: bare.are(2))
            await kept.write({})
            await bare.end_all()
            raise _Done
    except* _Done:
        assert reluctant.failures == 0


class _Done(Exception):
    """Ends the tasks of a group."""


def test_files_written_beside_json_are_newer() -> None:
    before = balancer(*(Listener("10.9.0.1", port, "UDP", ENDPOINTS) for port in (1, 2)))
    after = balancer(replace(before.listeners[0], endpoints=ENDPOINTS[:1]), before.listeners[1])
    was, now = (
        resources.configuration([one], folder="/f", eds=("udp_10.9.0.1_2",)) for one in (before, after)
    )
    files = _as_json(was.files)
    for step in resources.steps(resources.parsed(files), now):
        files |= step
    assert bootstrap.LISTENERS not in files
    assert resources.parsed(files) == now


async def _served_with_json(bare: World) -> tuple[str, LoadBalancer]:
    """An address where an Envoy of an earlier version serves a node over TCP and UDP."""
    nodes, place = await bare.nodes(1), bare.address()
    one = balancer(listener(place, nodes), udp := listener(place, nodes, "UDP"))
    made = resources.configuration([one], folder=".", eds=(udp.name,)).files
    files = _as_json({bootstrap.BOOTSTRAP: bootstrap.bootstrap("."), **made})
    await bare.attachment.start(Order(name="edge", generation=1, files=files))
    return place, one


def _as_json(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {
        name.replace(".pb", ".json"): _json(file) if name.endswith(".pb") else file.replace(b".pb", b".json")
        for name, file in files.items()
    }


def _json(file: bytes) -> bytes:
    found = [protobuf.resource(entry) for entry in protobuf.entries(file)]
    return orjson.dumps({"version_info": "1", "resources": found}).replace(b".pb", b".json")


async def _greets(address: str) -> bool:
    return await serves(address) and bool(await datagram(address))


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
        return {key: _normal(one) for key, one in value.items() if one not in _DEFAULTS}
    if isinstance(value, list):
        return [_normal(one) for one in value]
    if isinstance(value, str) and re.fullmatch(r"[0-9.]+s?", value):
        return float(value.removesuffix("s")) if value.count(".") < 2 else value
    return value
