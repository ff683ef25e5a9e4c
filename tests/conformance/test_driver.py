"""The driver of windowbox under Gardener's machine-controller-manager, and under windowbox's own sets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.api.machine.machines import Machines, machines, phase_of
from tests.support.kindworld import kind_world
from tests.support.machinecontrollermanager import manager
from tests.support.machines import complete, deployment
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_DEPLOYMENTS, MACHINES, PODS
from windowbox.settings.kindsettings import KindSettings, MachineSettings

_PATIENCE = 90.0
_SETS = ("machinedeployment", "machineset")


each_mode = pytest.mark.parametrize(
    ("mode", "pools"),
    [
        pytest.param("driver", ("machine",), id="C15-R1-driver-only"),
        pytest.param("full", ("machine", *_SETS), id="C15-R2-full"),
    ],
)


@pytest_asyncio.fixture
async def driven(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path, mode: Any, pools: tuple[str, ...]
) -> AsyncIterator[Machines]:
    """Machines of a Shoot, and whoever scales them in this mode."""
    settings = KindSettings(machines=MachineSettings(mode=mode))
    async with kind_world(plane, nats, *pools, kinds=settings) as world, machines(world) as made:
        with contextlib.ExitStack() as stack:
            if mode == "driver":
                stack.enter_context(manager(tmp_path, plane.kubeconfig, made.shoot.namespace))
            yield made


@each_mode
async def test_pods_follow_a_deployment(driven: Machines) -> None:
    await driven.machine_class("big")
    await driven.world.kube.create(MACHINE_DEPLOYMENTS, driven.shoot.namespace, deployment(replicas=2))
    await _until(driven, complete)
    assert await _classes(driven) == ["small", "small"]
    big = {"spec": {"template": {"spec": {"class": {"name": "big"}}}}}
    await driven.shoot.merge(MACHINE_DEPLOYMENTS, "pool", big)
    await _until(driven, lambda one: complete(one) and one.status["observedGeneration"] > 1)
    assert await _classes(driven) == ["big", "big"]
    await driven.shoot.delete(MACHINE_DEPLOYMENTS, "pool")
    await driven.shoot.until(MACHINE_DEPLOYMENTS, "pool", lambda one: one is None, _PATIENCE)
    assert await _classes(driven) == []


@each_mode
async def test_a_lost_pod_is_replaced_before_the_health_timeout(driven: Machines) -> None:
    await driven.world.kube.create(MACHINE_DEPLOYMENTS, driven.shoot.namespace, deployment(replicas=2))
    await _until(driven, complete)
    found = driven.world.kube.objects(MACHINES, namespace=driven.shoot.namespace)
    [lost, kept] = [one.name async for one in found]
    await driven.world.kube.remove(PODS, driven.infra, f"machine-{lost}", grace=0)
    await driven.simulator.node(f"machine-{lost}", Ready="Unknown")
    await driven.shoot.until(MACHINES, lost, lambda one: one is None, _PATIENCE)
    await _until(driven, complete)
    assert await _classes(driven) == ["small", "small"]
    assert phase_of(await driven.shoot.get(MACHINES, kept)) == "Running"
    await driven.shoot.delete(MACHINE_DEPLOYMENTS, "pool")
    await driven.shoot.until(MACHINE_DEPLOYMENTS, "pool", lambda one: one is None, _PATIENCE)


async def _until(made: Machines, holds: Any) -> None:
    await made.shoot.until(MACHINE_DEPLOYMENTS, "pool", lambda one: one is not None and holds(one), _PATIENCE)


async def _classes(made: Machines) -> list[str]:
    """The classes of all machines, each of which runs and has a Pod."""
    kube = made.world.kube
    found = [
        Object(raw) for raw in (await kube.page(MACHINES, namespace=made.shoot.namespace, limit=500)).items
    ]
    pods = {Object(raw).name for raw in (await kube.page(PODS, namespace=made.infra, limit=500)).items}
    assert {phase_of(one) for one in found} <= {"Running"}
    assert pods == {f"machine-{one.name}" for one in found}
    return [one.spec["class"]["name"] for one in found]
