"""An Envoy for each Service, for those who want walls."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.balancerworld import BalancerWorld, balancer_world, greeting, played_node
from tests.support.natsserver import NatsServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from workers.loadbalancer.envoy import bootstrap
from workers.loadbalancer.envoy.process import Process, Processes

PLACE = f"127.67.{os.getpid() % 250}"
NODE, NODE_PORT = f"{PLACE}.1", 31067


@pytest_asyncio.fixture
async def world(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> AsyncIterator[BalancerWorld]:
    ranges = [{"prefixes": [f"{PLACE}.16/29"]}]
    isolated = balancer_world(control_plane, nats, tmp_path, "walls", ranges=ranges, isolation=True)
    async with isolated as made, played_node(NODE, NODE_PORT, "hello"):
        await made.node("one", NODE)
        yield made


async def test_each_service_has_its_own_envoy(world: BalancerWorld) -> None:
    async with world.worker():
        for name in ("web", "api"):
            await world.service(name, node_port=NODE_PORT if name == "web" else None)
            await world.served(name)
        first, second = await envoys(world)
        where = await world.served("web")
        other = second if await carries(first, where) else first
        os.kill(other.pid, signal.SIGKILL)
        assert await greeting(where) == "hello"

        async def back() -> bool:
            return other.pid not in {one.pid for one in await envoys(world)} and len(await envoys(world)) == 2

        await eventually(back)
        await world.delete("web")
        await world.gone("web")

        async def alone() -> bool:
            return len(await envoys(world)) == 1

        await eventually(alone)


async def envoys(world: BalancerWorld) -> list[Process]:
    """The Envoys that run."""
    attachment = Processes(world.folder / "edge")
    running = [one for name in await attachment.names() for one in await attachment.found(name)]
    return [one for one in running if isinstance(one, Process)]


async def carries(envoy: Process, address: str) -> bool:
    """Whether it is told to listen there."""
    with contextlib.suppress(FileNotFoundError):
        return address.encode() in (await envoy.read(bootstrap.LISTENERS) or b"")
    return False
