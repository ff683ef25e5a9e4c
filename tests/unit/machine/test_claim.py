"""A Machine is claimed before any object is created for it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bus.messages import Reason, Wish
from tests.support.machineapi import MachineApi
from tests.unit.machine.samples import NOW, machine
from windowbox.errors import Conflict
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINES, RUNTIME, ObjectRef
from workers.core.owned.targets import TargetClusters
from workers.core.reconcile import Request
from workers.machines.machine.machinecreation import claim
from workers.machines.machine.machinestatus import MachineRun

CLAIMED = {
    "finalizers": [keys.FINALIZER],
    "labels": {keys.NODE: "machine-a"},
    "annotations": {keys.PRIORITY: keys.USUAL_PRIORITY},
}


def claimed(**metadata: Any) -> Object:
    found = machine(providerID="machine-a")
    return Object({**found.raw, "metadata": {**found.metadata, **CLAIMED, **metadata}})


@pytest.mark.parametrize(
    "live",
    [
        pytest.param(None, id="gone"),
        pytest.param(claimed(uid="another"), id="recreated"),
        pytest.param(claimed(deletionTimestamp="2026-08-21T10:00:00Z"), id="deleted"),
    ],
)
async def test_nothing_is_made_for_a_machine_that_is_gone(live: Object | None) -> None:
    api = MachineApi()
    if live:
        api.add(MACHINES, live)
    with pytest.raises(Conflict):
        await _claim(api)


async def test_a_machine_that_is_claimed_and_there_is_read_once() -> None:
    api = MachineApi()
    api.add(MACHINES, claimed())
    await _claim(api)
    assert api.asked == ["Machine a"]


async def _claim(api: MachineApi) -> None:
    nothing, clusters = cast(Any, None), cast(Any, api)
    ref = ObjectRef(RUNTIME, MACHINES.id, "shoot--l--d", "a")
    run = MachineRun(Request(ref, Wish(reason=Reason.RETRY), api, nothing), claimed(), NOW)
    await claim(TargetClusters(clusters, nothing).own_cluster(run.run), run)
