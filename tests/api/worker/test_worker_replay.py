"""Runs of Workers, recorded and replayed; and their reports while many machines are created."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest_asyncio

from tests.api.worker.workerobjects import NAME, SCRIPT, create, shoot_with, spec
from tests.support.kindworld import KindWorld, kind_world
from tests.support.machinedriver import SimulatedDriver
from tests.support.natsserver import NatsServer
from tests.support.running import running
from tests.support.servers import ControlPlane
from tests.support.workerexample import pool
from windowbox.models.refs import WORKERS
from workers import replay


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    async with kind_world(plane, nats, "worker", "machinedeployment", "machineset") as made:
        yield made


async def test_recorded_runs_are_replayed_without_differences(world: KindWorld) -> None:
    began = datetime.now(UTC)
    small = pool(minimum=2, maximum=4, zones=["a", "b"])
    shoot = await shoot_with(world, small)
    async with running(SimulatedDriver(shoot.kube, shoot.namespace).run()):
        await create(shoot, small)
        await shoot.until_ready(WORKERS, NAME)
        await shoot.ask(WORKERS, NAME, spec=spec(shoot, {**small, "machineType": "huge"}))
        await shoot.until_failed(WORKERS, NAME)
        await shoot.delete(WORKERS, NAME)
        await shoot.until_gone(WORKERS, NAME)
        await world.quiet()
    recording = await world.recorded(began, "worker")
    result = await replay.replayed(recording)
    assert result.differences == []
    assert result.replayed >= 4
    told = str([call for run in recording.runs for call in run.calls])
    assert base64.b64encode(SCRIPT).decode() not in told


async def test_many_machines_cost_few_reports(world: KindWorld) -> None:
    many = pool(minimum=20, maximum=20)
    shoot = await shoot_with(world, many)
    async with running(SimulatedDriver(shoot.kube, shoot.namespace).run()):
        audit = world.audit()
        await create(shoot, many)
        await shoot.until_ready(WORKERS, NAME)
        await world.quiet()
    requests = audit.requests()
    assert requests["patch workers/status"] <= 20
