"""The edge as a process of its own, with the rights of its role and no others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
import yaml

from bus.transport.connection import connected
from sandbox import processes
from tests.support.balancerworld import BalancerWorld, balancer_world, greeting, played_node
from tests.support.roles import RoleServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from workers.loadbalancer.edge import edgestatus

PLACE = f"127.68.{os.getpid() % 250}"
NODE = f"{PLACE}.9"
NODE_PORT = 30080


@pytest_asyncio.fixture
async def world(
    control_plane: ControlPlane, roles: RoleServer, tmp_path: Path
) -> AsyncIterator[BalancerWorld]:
    """A cluster with a node, on a bus that knows the roles. Its workers leave Envoy to others."""
    ranges = [{"prefixes": [f"{PLACE}.16/29"]}]
    made = balancer_world(control_plane, roles, tmp_path, "separate", ranges=ranges, edge="separate")
    async with made as world, played_node(NODE, {NODE_PORT: "hello"}):
        await world.node("node-1", NODE)
        yield world


@contextlib.asynccontextmanager
async def edge(world: BalancerWorld, roles: RoleServer) -> AsyncIterator[Path]:
    """`windowbox edge` without a cluster, and with the password of its own role only. Yields its log."""
    file, log = world.folder / "edge.yaml", world.folder / "edge.log"
    nats = {"url": roles.url, "user": "edge", "password": roles.passwords["edge"]}
    balancing = world.settings.model_dump(mode="json", exclude_defaults=True)
    file.write_text(yaml.safe_dump({"nats": nats, "loadbalancer": balancing}))
    keep = ("PATH", "PYTHONPATH", "LANG")
    env = {name: os.environ[name] for name in keep if name in os.environ} | {"HOME": str(world.folder)}
    with log.open("wb") as output:
        child = await asyncio.create_subprocess_exec(
            *processes.dying_with_parent(
                [sys.executable, "-m", "windowbox", "edge", "--settings", str(file)]
            ),
            stdout=output, stderr=output, env=env,
        )  # fmt: skip
        try:
            yield log
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            await child.wait()


async def test_the_edge_serves_with_the_rights_of_its_role(world: BalancerWorld, roles: RoleServer) -> None:
    async with edge(world, roles) as log, world.worker():
        await world.service("web", node_port=NODE_PORT)
        where = await world.served("web")
        assert await greeting(where) == "hello"
        async with connected(roles.access("operator")) as bus:
            answer = await edgestatus.query(bus)
        assert answer is not None
        assert (answer.count, answer.envoys[0].name) == (1, "edge")
        await world.delete("web")
        await world.gone("web")
        assert "ermission" not in log.read_text()


async def test_workers_leave_envoy_to_a_separate_edge(world: BalancerWorld, roles: RoleServer) -> None:
    async with world.worker() as parts:
        assert "edge" not in parts.leased
        await world.service("web", node_port=NODE_PORT)
        await eventually(lambda: bool(parts.store.holders()))
        async with edge(world, roles):
            assert await greeting(await world.served("web")) == "hello"
