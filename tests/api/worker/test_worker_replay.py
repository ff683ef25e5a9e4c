"""Runs of Workers, recorded and replayed; and their reports while many machines are created."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest

from tests.api.worker.workerobjects import NAME, SCRIPT, create, shoot_with, spec
from tests.support.kindworld import KindWorld
from tests.support.machinedriver import SimulatedDriver
from tests.support.running import running
from tests.support.workerexample import pool
from windowbox.models.refs import WORKERS
from workers import replay

pytestmark = pytest.mark.serves("worker", "machinedeployment", "machineset")


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
