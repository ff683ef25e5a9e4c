"""Deletions of ControlPlanes, and the second ControlPlane of Shoots of former versions of Gardener."""

from __future__ import annotations

import contextlib
from typing import Any, cast

from tests.support.cases import cases
from tests.support.rules import rule
from tests.unit.controlplane import doors
from tests.unit.controlplane.doors import Doors
from windowbox.errors import Waiting
from windowbox.models.objects import Object
from windowbox.models.refs import CONTROL_PLANES, RUNTIME, ObjectRef
from workers.core.lifecycle.actuators import Run
from workers.kinds.controlplane import controlplanesite

LIVE: dict[str, Any] = {}
GOING = {"deletionTimestamp": "2026-09-01T00:00:00Z"}


@cases(
    "seed, configuration, forced, renews",
    {
        "at-work": (LIVE, LIVE, False, True),
        "going": (GOING, LIVE, False, False),
        "configuration-goes": (LIVE, GOING, False, False),
        "gone": (None, LIVE, False, False),
        "forced": (LIVE, LIVE, True, False),
    },
)
async def test_a_deletion_renews_only_a_configuration_in_use(
    seed: Any, configuration: Any, forced: bool, renews: bool
) -> None:
    found = {controlplanesite.SEED: seed, controlplanesite.CONFIGURATION: configuration}
    world = Doors({name: metadata for name, metadata in found.items() if metadata is not None})
    actuator, run = doors.actuator(), doors.run(world)
    with contextlib.suppress(Waiting):
        await (actuator.force_delete(run) if forced else actuator.delete(run))
    assert (controlplanesite.CONFIGURATION in world.written) is renews


@rule("C-3", "V-11")
async def test_a_deletion_does_not_need_its_cluster() -> None:
    world = Doors({controlplanesite.SEED: LIVE, controlplanesite.CONFIGURATION: LIVE})
    world.cluster = None
    await doors.actuator().delete(doors.run(world))
    assert world.written == []


@rule("S-6")
async def test_an_exposure_succeeds_without_creating_anything() -> None:
    nowhere = cast(Any, None)
    object = Object({"spec": {"type": "local", "purpose": "exposure"}})
    run = Run(ObjectRef(RUNTIME, CONTROL_PLANES.id, "a", "a-exposure"), object, None, nowhere)
    assert await doors.actuator().reconcile(run) == {}
    await doors.actuator().delete(run)
    await doors.actuator().migrate(run)
