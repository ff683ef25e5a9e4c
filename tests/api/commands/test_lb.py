"""`windowbox lb`, and what other commands tell of load balancers, on real servers and a real Envoy."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.api.commands.operated import CommandLine
from tests.support.balancerworld import BalancerWorld, address, balancer_world, greeting, played_node
from tests.support.cases import cases
from tests.support.natsserver import NatsServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from workers.loadbalancer.spec.options import DRAIN

PLACE = f"127.68.{os.getpid() % 250}"
"""Loopback addresses that no other run of the tests has."""
NODE, NODE_PORT = f"{PLACE}.1", 31067


@dataclass(frozen=True)
class Asked:
    """A world with one worker, and the command line of its operator."""

    world: BalancerWorld
    windowbox: CommandLine

    async def __call__(self, *arguments: str, expect: int = 0) -> str:
        return await asyncio.to_thread(self.windowbox, *arguments, expect=expect)

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self(*arguments, "-o", "json"))

    async def balancer(self, name: str) -> dict[str, Any]:
        """What `lb list` tells of it."""
        listed = (await self.json("lb", "list"))["loadBalancers"]
        return next((one for one in listed if one["name"] == name), {})

    async def web(self) -> str:
        """Create the Service `web`: its address, once it is served."""
        await self.world.service("web", node_port=NODE_PORT)
        return await self.world.served("web")

    async def healthy(self) -> dict[str, Any]:
        """What `lb list` tells of `web`, once Envoy takes its backend for healthy."""

        async def look() -> dict[str, Any]:
            found = await self.balancer("web")
            return found if (found["backends"] or {}).get("healthy") else {}

        return await eventually(look)


@pytest_asyncio.fixture
async def asked(control_plane: ControlPlane, nats: NatsServer, tmp_path: Path) -> AsyncIterator[Asked]:
    ranges = [{"prefixes": [f"{PLACE}.16/29"]}]
    settings = tmp_path / "operator.yaml"
    content = {
        "nats": {"url": nats.url},
        "cluster": {"kubeconfig": str(control_plane.kubeconfig)},
        "loadbalancer": {"ranges": ranges},
    }
    settings.write_text(yaml.safe_dump(content))
    async with (
        balancer_world(control_plane, nats, tmp_path, "looked-at", ranges=ranges) as world,
        played_node(NODE, {NODE_PORT: "hello"}),
        world.worker(),
    ):
        await world.node("one", NODE)
        yield Asked(world, CommandLine(settings, {}))


async def test_each_is_listed_with_address_ports_and_health(asked: Asked) -> None:
    where = await asked.web()
    web = await asked.healthy()
    since, connections = web.pop("since"), web.pop("connections")
    assert web == {
        "cluster": "runtime", "namespace": "looked-at", "name": "web", "addresses": [where],
        "hostname": None,
        "host": None,
        "ports": ["80/TCP"], "backends": {"healthy": 1, "all": 1}, "state": "serving", "why": "",
    }  # fmt: skip
    assert since
    assert connections["open"] == 0

    shown = await asked("lb", "list")
    assert shown.split()[:6] == ["CLUSTER", "SERVICE", "ADDRESS", "PORTS", "BACKENDS", "SINCE"]
    assert f"looked-at/web  {where}" in shown
    assert "Envoy 1." in shown
    assert "1 of 8 in use" in shown


async def test_one_is_shown_down_to_each_backend_byte_and_event(asked: Asked) -> None:
    where = await asked.web()
    await asked.healthy()
    assert await greeting(where) == "hello"
    found = await asked.json("lb", "show", "looked-at/web")
    [place] = found["places"]
    assert (place["address"], place["port"], place["protocol"]) == (where, 80, "TCP")
    assert place["sent"] >= len("hello\n")
    assert place["backends"] == [
        {"name": "one", "address": NODE, "port": NODE_PORT, "healthy": True, "reasons": []}
    ]
    assert [event["reason"] for event in found["events"]] == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]
    [envoy] = found["edge"]["envoys"]
    assert envoy["pid"] > 0
    assert envoy["version"].startswith("1.")

    shown = await asked("lb", "show", "looked-at/web")
    assert f"{where}:80/TCP: 0 connections now, " in shown
    assert "✓ healthy" in shown


async def test_the_reason_for_not_serving_is_shown(asked: Asked) -> None:
    await asked.world.service("far", metadata={"annotations": {"loadbalancer.windowbox/address": "10.1.2.3"}})
    await asked.world.reported("far", "SyncLoadBalancerFailed")
    far = await asked.balancer("far")
    assert (far["state"], far["addresses"]) == ("waiting", [])
    assert "10.1.2.3 is none of the addresses that can be given away" in far["why"]
    shown = await asked("lb", "show", "looked-at/far")
    assert "  why: annotation loadbalancer.windowbox/address" in shown
    assert "  address: none yet" in shown


async def test_failing_backends_are_shown_with_the_reason(asked: Asked) -> None:
    await asked.world.node("one", f"{PLACE}.9")
    await asked.web()

    async def look() -> dict[str, Any]:
        found = await asked.balancer("web")
        return found if found["backends"] == {"healthy": 0, "all": 1} else {}

    web = await eventually(look)
    assert web["state"] == "not served"
    assert web["why"].startswith("none of its backends is healthy")
    assert "its health check fails" in await asked("lb", "show", "looked-at/web")


async def test_a_drained_one_takes_nothing_new_and_keeps_what_it_has(asked: Asked) -> None:
    await asked.world.service("busy", node_port=NODE_PORT)
    where = await asked.world.served("busy")
    reader, writer = await asyncio.open_connection(where, 80)
    async with asyncio.timeout(60):
        assert await reader.readline() == b"hello\n"

    said = await asked("lb", "drain", "looked-at/busy")
    assert said.startswith("looked-at/busy takes no new connections; ")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(where, 80)
    service = await asked.world.until("busy", lambda found: serving(found)["reason"] == "Drained")
    assert address(service) == where
    web = await asked.balancer("busy")
    assert (web["state"], web["addresses"]) == ("drained", [where])
    reasons = [reason for reason, _ in await asked.world.events("busy")]
    assert reasons == ["EnsuringLoadBalancer", "EnsuredLoadBalancer", "DrainedLoadBalancer"]

    said = await asked("lb", "drain", "looked-at/busy", "--undo")
    assert said == f"looked-at/busy takes connections again: {where}, 80/TCP.\n"
    assert await greeting(where) == "hello"
    writer.close()


@pytest.mark.long  # the test above drains one
async def test_what_is_drained_before_it_ever_served_shows_no_address(asked: Asked) -> None:
    await asked.world.service("early", node_port=NODE_PORT, metadata={"annotations": {DRAIN: "true"}})
    await asked.world.reported("early", "DrainedLoadBalancer")
    found = await asked.world.until("early", lambda one: bool(serving(one)))
    assert (address(found), serving(found)["status"]) == ("", "False")
    await asked("lb", "drain", "looked-at/early", "--undo")
    assert await greeting(await asked.world.served("early")) == "hello"


@pytest.mark.long  # test_trace.py traces records
async def test_trace_shows_finalizer_address_edge_and_status(asked: Asked) -> None:
    where = await asked.web()

    async def look() -> str:
        shown = await asked("trace", "service", "looked-at/web")
        return shown if "status: " in shown else ""

    shown = " ".join((await eventually(look)).split())
    for part in (
        "load-balancer-cleanup", f"addresses: {where}", "backends one", f"status: {where} 80/TCP",
        "LoadBalancerServing True", "event: EnsuredLoadBalancer: Ensured load balancer",
    ):  # fmt: skip
        assert part in shown, part


async def test_top_shows_the_edge(asked: Asked) -> None:
    await asked.web()

    async def look() -> Any:
        edge = (await asked.json("top", "--once"))["edge"]
        return edge if edge and edge["count"] == 1 else None

    edge = await eventually(look)
    assert edge["ranges"] == [{"range": f"{PLACE}.16/29", "family": "IPv4", "used": 1, "total": 8}]
    assert "1 load balancer\n" in await asked("top", "--once")


def test_an_empty_bus_leads_to_the_next_step(alone: CommandLine) -> None:
    assert "Start `windowbox watch`" in alone("lb", "list", expect=3)


@cases(
    "arguments code said",
    ("unknown", ("show", "looked-at/nobody"), 3, "`windowbox lb list` shows all"),
    ("drain-unknown", ("drain", "looked-at/nobody"), 3, "`windowbox lb list` shows all"),
    ("no-namespace", ("show", "web"), 2, "write NAMESPACE/NAME"),
    ("too-much", ("drain", "a/b/c"), 2, "write NAMESPACE/NAME"),
)
async def test_a_mistake_about_load_balancers_is_explained(
    asked: Asked, arguments: tuple[str, ...], code: int, said: str
) -> None:
    assert said in await asked("lb", *arguments, expect=code)


def serving(service: Any) -> dict[str, Any]:
    """Its condition LoadBalancerServing."""
    found = service.status.get("conditions") or []
    return next((one for one in found if one["type"] == "LoadBalancerServing"), {})
