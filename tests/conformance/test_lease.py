"""The Lease of a namespace is deleted beside Gardener's machine-controller-manager and windowbox."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.api.machine.machines import EVENTS, Machines, machines, phase_of
from tests.support.auditlog import creators
from tests.support.kindworld import kind_world
from tests.support.machinecontrollermanager import manager
from tests.support.machines import complete, deployment
from tests.support.natsserver import NatsServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.models.objects import Object
from windowbox.models.refs import LEASES, MACHINE_DEPLOYMENTS, MACHINES, PODS
from windowbox.settings.kindsettings import KindSettings, MachineSettings

_NAME = "machine-controller-manager"
_PATIENCE = 90.0
_OURS = "system:windowbox:worker"


@pytest.mark.parametrize(
    ("mode", "pools", "by_windowbox"),
    [
        pytest.param("driver", ("machine",), 0, id="C15-R1-driver"),
        pytest.param("full", ("machine", "machinedeployment", "machineset"), 3, id="C15-R4-full"),
    ],
)
async def test_one_program_goes_on_without_the_lease(
    plane: ControlPlane,
    nats: NatsServer,
    tmp_path: Path,
    mode: Any,
    pools: tuple[str, ...],
    by_windowbox: int,
) -> None:
    settings = KindSettings(machines=MachineSettings(mode=mode))
    async with kind_world(plane, nats, *pools, kinds=settings) as world, machines(world) as made:
        home = made.shoot.namespace
        with contextlib.ExitStack() as stack:
            if mode == "driver":
                stack.enter_context(manager(tmp_path, plane.kubeconfig, home))
            await world.kube.create(MACHINE_DEPLOYMENTS, home, deployment(replicas=3))
            await _until_complete(made)
            if mode == "full":
                stack.enter_context(manager(tmp_path, plane.kubeconfig, home))
            await made.shoot.delete(LEASES, _NAME)
            await made.shoot.until(LEASES, _NAME, _is_gardeners, _PATIENCE)
            first, second, kept = await _running(made)
            await made.delete(first)
            await made.delete(second)

            async def are_replaced() -> bool:
                found = await _running(made)
                return len(found) == 3 and not {first, second} & set(found)

            await eventually(are_replaced)
            if mode == "full":
                await eventually(lambda: _is_left_alone(made))
            await world.quiet()
            assert len(await _listed(made)) == 3
            assert kept in await _running(made)
            assert len((await world.kube.page(PODS, namespace=made.infra)).items) == 3
            made_by = creators(world, home, "machines")
            assert made_by.pop(_OURS, 0) == by_windowbox
            assert made_by.total() == 5 - by_windowbox
            await made.shoot.delete(MACHINE_DEPLOYMENTS, "pool")
            await made.shoot.until(MACHINE_DEPLOYMENTS, "pool", lambda one: one is None, _PATIENCE)


def _is_gardeners(lease: Object | None) -> bool:
    return lease is not None and lease.spec.get("holderIdentity") not in (None, "", "windowbox")


async def _until_complete(made: Machines) -> None:
    await made.shoot.until(
        MACHINE_DEPLOYMENTS, "pool", lambda one: one is not None and complete(one), _PATIENCE
    )


async def _listed(made: Machines) -> list[Object]:
    return [
        Object(raw) for raw in (await made.world.kube.page(MACHINES, namespace=made.shoot.namespace)).items
    ]


async def _running(made: Machines) -> list[str]:
    return [one.name for one in await _listed(made) if phase_of(one) == "Running"]


async def _is_left_alone(made: Machines) -> bool:
    events = (await made.world.kube.page(EVENTS, namespace=made.shoot.namespace)).items
    return "NamespaceServedByOthers" in [raw.get("reason") for raw in events]
