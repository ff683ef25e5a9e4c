"""The second ControlPlane that Shoots of former versions of Gardener have."""

from __future__ import annotations

from typing import Any, cast

from tests.support.rules import rule
from windowbox.models.objects import Object
from windowbox.models.refs import CONTROL_PLANES, RUNTIME, ObjectRef
from windowbox.settings.kindsettings import KindSettings
from workers.core.lifecycle.actuators import Run
from workers.kinds.controlplane.controlplanepool import ControlPlaneActuator


@rule("S-6")
async def test_an_exposure_succeeds_without_making_anything() -> None:
    nowhere = cast(Any, None)
    actuator = ControlPlaneActuator(nowhere, KindSettings())
    object = Object({"spec": {"type": "local", "purpose": "exposure"}})
    run = Run(ObjectRef(RUNTIME, CONTROL_PLANES.id, "a", "a-exposure"), object, None, nowhere)
    assert await actuator.reconcile(run) == {}
    await actuator.delete(run)
    await actuator.migrate(run)
