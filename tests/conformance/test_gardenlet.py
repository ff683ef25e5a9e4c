"""gardenlet's own code deploys, migrates, restores and destroys a ControlPlane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from sandbox.programs import binaries
from tests.api.controlplane.controlplanes import PROFILE, bundles, secrets, shoot_of
from tests.support import servers
from tests.support.kindworld import Client, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.models.refs import CONTROL_PLANES

PROGRAM = "gardenlet-client"
AUTHORITY = "ca-provider-local-controlplane"


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    servers.need(PROGRAM)
    async with kind_world(plane, nats, "controlplane") as made:
        yield made


async def run(shoot: Client, *steps: str) -> tuple[str, str]:
    """Run these steps. Returns their output, and the error output if one fails."""
    program: Path = await asyncio.to_thread(binaries.find, PROGRAM)
    command, pipe = (program, str(shoot.world.plane.kubeconfig), shoot.namespace), asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, *steps, stdout=pipe, stderr=pipe)
    said, complaint = await process.communicate()
    return said.decode(), complaint.decode() if process.returncode else ""


async def gardenlet(shoot: Client, *steps: str) -> str:
    return (await run(shoot, *steps))[1]


@rule("W-3", "W-4", "W-5", "W-7", "A.13", "C-3")
async def test_gardenlet_accepts_the_reports_of_a_control_plane(world: KindWorld) -> None:
    shoot = await shoot_of(world)
    assert await gardenlet(shoot, "deploy", "wait", "deploy", "wait") == ""

    async def lacks_config() -> bool:
        return "add a CloudProfileConfig" in await gardenlet(shoot, "deploy", "wait")

    await shoot.cluster(cloudProfile={"spec": {"providerConfig": None}})
    # The first run may see the Cluster as it was, as with the caches of Gardener's own controllers.
    await eventually(lacks_config)
    await shoot.cluster(cloudProfile=PROFILE)
    assert await gardenlet(shoot, "deploy", "wait") == ""

    before = await _authorities(shoot)
    assert await gardenlet(shoot, "migrate", "wait-migrate") == ""
    migrated = await shoot.get(CONTROL_PLANES, "local")
    assert migrated
    assert not migrated.finalizers
    assert await bundles(shoot) == {}
    assert await gardenlet(shoot, "restore", "wait") == ""
    restored = await shoot.get(CONTROL_PLANES, "local")
    assert restored
    assert restored.last_operation["type"] == "Restore"
    assert await _authorities(shoot) == before

    assert await gardenlet(shoot, "destroy", "wait-cleanup") == ""
    assert await shoot.get(CONTROL_PLANES, "local") is None
    assert await secrets(shoot) == {}


async def _authorities(shoot: Client) -> list[str]:
    return [one.name for one in (await secrets(shoot)).values() if one.labels.get("name") == AUTHORITY]
