"""Objects as large as the API server takes them hold no event loop of a process that does everything."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from commands.roles import patching, roleprocess, watching, working
from tests.support import leftovers
from tests.support.hostile import holds, manifests, tenants
from tests.support.hostile.attack import Attack
from tests.support.hostile.manifests import SERVED, Hostile
from tests.support.kindworld import inline
from tests.support.natsserver import NatsServer
from tests.support.running import running
from tests.support.servers import ControlPlane
from tools.bench import client as clients
from windowbox.kinds import POOLS
from windowbox.settings.settings import Settings

MOST = 0.15
"""Seconds of CPU time of one turn of the loop: 0.1 on an idle machine, more where tests share its caches."""
SEED = 1
AFTERWARDS = 5.0
"""Seconds for the runs of the last objects, and for two sweeps."""
COSTLY = {"ingress": "spec.rules"}
"""The list that costs most, with a record for each host, which any tenant may write."""


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_the_longest_lists_hold_no_loop(plane: ControlPlane, nats: NatsServer, tmp_path: Path) -> None:
    every = manifests.largest(tenants.names(1))
    chosen = [one for one in every if one.what.split()[0] == COSTLY.get(one.row.pool)]
    assert len(chosen) == len(COSTLY)
    assert await holds_by(chosen, plane, nats, tmp_path) == []


@pytest.mark.long  # the costliest is in the test above
@pytest.mark.timeout(900)
async def test_no_object_holds_a_loop(plane: ControlPlane, nats: NatsServer, tmp_path: Path) -> None:
    assert await holds_by([*manifests.largest(tenants.names(1))], plane, nats, tmp_path) == []


async def holds_by(objects: list[Hostile], plane: ControlPlane, nats: NatsServer, folder: Path) -> list[str]:
    """What holds the loop of a process of all roles while these objects are created."""
    leftovers.expect(plane, *(row.resource for row in SERVED))
    async with serving(plane, nats, folder):
        with holds.measured(MOST * holds.slowness()) as found:
            # In a thread: the attack must not count.
            made = await asyncio.to_thread(asyncio.run, attack(plane, objects))
            await asyncio.sleep(AFTERWARDS)  # no event says that all runs have ended
    assert {one.row.pool for one in made} == {one.row.pool for one in objects}
    return found.found


async def attack(plane: ControlPlane, objects: list[Hostile]) -> list[Hostile]:
    """Create a tenant and the objects. Returns those that the API server took."""
    kubeconfig = inline(plane.kubeconfigs["provider"].read_bytes()).decode()
    async with clients.opened(plane.api) as client, tenants.silent_server() as silent:
        attacking = Attack(client, await tenants.prepare(client, 1, kubeconfig, silent, SEED))
        await attacking.create(objects)
        return attacking.made


@contextlib.asynccontextmanager
async def serving(plane: ControlPlane, nats: NatsServer, folder: Path) -> AsyncIterator[None]:
    """A process like `windowbox run`, without an edge."""
    settings = Settings.model_validate(
        {
            "nats": {"url": nats.url},
            "cluster": {"kubeconfig": plane.kubeconfig},
            "backup": {"root": folder},
            "dns": {"zones": [{"name": "local.gardener.cloud", "servers": ["127.0.0.1:1"]}]},
            "egress": {"allowed": ["127.0.0.0/8"]},
            "loadbalancer": {"ranges": [{"prefixes": ["127.200.0.0/24"]}], "edge": "separate"},
            "work": {"sweep_interval": 2},
        }
    )
    async with roleprocess.process(settings, "run") as made:
        await watching.watch(made)
        await working.work(made, POOLS)
        await patching.patch(made)
        async with running(made.run()):
            yield
