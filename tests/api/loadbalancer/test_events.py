"""How many Events healthy Services have, and what they show when an address changes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.balancerworld import (
    EVENTS,
    BalancerWorld,
    address,
    balancer_world,
    played_node,
    taken_port,
)
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from workers.loadbalancer.envoy.process import Process, Processes

PLACE = f"127.68.{os.getpid() % 250}"
NODE, NODE_PORT = f"{PLACE}.1", 31068
MANY = 50


@pytest_asyncio.fixture
async def world(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> AsyncIterator[BalancerWorld]:
    """A cluster with one simulated node."""
    ranges = [{"prefixes": [f"{PLACE}.128/25"]}]
    async with (
        balancer_world(control_plane, nats, tmp_path, "events", ranges=ranges) as made,
        played_node(NODE, NODE_PORT, "hello"),
    ):
        await made.node("one", NODE)
        yield made


@rule("LB-3-healthy")
async def test_each_of_many_healthy_services_has_two_events(world: BalancerWorld) -> None:
    names = [f"many-{number}" for number in range(MANY)]
    async with world.worker():
        for name in names:
            await world.service(name)
        for name in names:
            await world.served(name)

        async def all_told() -> bool:
            return all("EnsuredLoadBalancer" in reasons for reasons in (await reasons_of(world)).values())

        await eventually(all_told)
        # A last Service, whose Events come after anything that was still to be said of the others.
        await world.service("last")
        await world.told("last", "EnsuredLoadBalancer")
        found = await reasons_of(world)
        others = {
            name: found[name]
            for name in names
            if found[name] != ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]
        }
        assert others == {}


@rule("LB-3-healthy")
async def test_a_slow_envoy_is_no_failure_of_a_service(world: BalancerWorld) -> None:
    async with world.worker():
        await world.service("first")
        await world.served("first")
        [envoy] = await Processes(world.folder / "edge").found("edge")
        assert isinstance(envoy, Process)
        os.kill(envoy.pid, signal.SIGSTOP)
        try:
            await world.service("slow")
            await asyncio.sleep(4)  # longer than an Envoy takes that is not slow
        finally:
            os.kill(envoy.pid, signal.SIGCONT)
        await world.told("slow", "EnsuredLoadBalancer")
        assert (await reasons_of(world))["slow"] == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]


async def reasons_of(world: BalancerWorld) -> dict[str, list[str]]:
    """The reasons of the Events of each Service, oldest first."""
    found = defaultdict[str, list[str]](list)
    events = (await world.kube.page(EVENTS)).items
    for event in sorted(events, key=lambda one: int(one["metadata"]["resourceVersion"])):
        mine = event["involvedObject"].get("namespace") == world.namespace
        if mine and event.get("source", {}).get("component") == "service-controller":
            found[event["involvedObject"]["name"]].append(event["reason"])
    return found


async def test_an_address_that_a_service_left_is_shown_no_longer(world: BalancerWorld) -> None:
    first, second = f"{PLACE}.130", f"{PLACE}.131"
    async with world.worker():
        await world.service("mover", port=8068, metadata=fixed(first))
        assert await world.served("mover") == first
        with taken_port(second, 8068):
            await world.merge("mover", {"metadata": fixed(second)})
            said = await world.told("mover", "SyncLoadBalancerFailed")
            assert f"another process of this host holds port 8068/TCP of {second}" in said
            await world.until("mover", lambda found: not address(found))
        assert await world.served("mover") == second


def fixed(where: str) -> dict[str, object]:
    return {"annotations": {"loadbalancer.windowbox/address": where}}
