"""Which changes of machines concern their Worker."""

from __future__ import annotations

from typing import Any

import pytest

from windowbox.models.objects import Object
from windowbox.models.refs import (
    API_SERVER,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    PLANE_DEPLOYMENTS,
    Resource,
)
from workers.core.owned import ownermapping

UPDATING = {"type": "InPlaceUpdate", "reason": "SelectedForUpdate"}
SERVER = {"metadata": {"name": API_SERVER}}
PROGRESS = {"type": "Progressing", "status": "True"}


def changed(**parts: Any) -> Object:
    return Object({"metadata": {}, "spec": {}, "status": {}, **parts})


@pytest.mark.parametrize(
    ("kind", "after", "matters"),
    [
        pytest.param(MACHINES, {"status": {"conditions": [UPDATING]}}, True, id="A3-R6-updated-in-place"),
        pytest.param(MACHINES, {"status": {"currentStatus": {"phase": "Running"}}}, False, id="phase"),
        pytest.param(MACHINES, {"spec": {"providerID": "x"}}, False, id="provider-id"),
        pytest.param(MACHINE_SETS, {"status": {"replicas": 1}}, True, id="machines-of-a-set"),
        pytest.param(MACHINE_SETS, {"status": {"readyReplicas": 1}}, False, id="ready-machines-of-a-set"),
        pytest.param(MACHINE_DEPLOYMENTS, {"status": {"readyReplicas": 1}}, True, id="numbers"),
        pytest.param(MACHINE_DEPLOYMENTS, {"status": {"conditions": [PROGRESS]}}, True, id="condition"),
        pytest.param(MACHINE_DEPLOYMENTS, {"spec": {"replicas": 1}}, True, id="replicas"),
        pytest.param(PLANE_DEPLOYMENTS, {"status": {"conditions": [PROGRESS]}}, True, id="HC-1-manager"),
        pytest.param(PLANE_DEPLOYMENTS, {"status": {"readyReplicas": 1}}, False, id="ready-managers"),
        pytest.param(
            PLANE_DEPLOYMENTS, {**SERVER, "status": {"readyReplicas": 1}}, False, id="ready-servers"
        ),
        pytest.param(PLANE_DEPLOYMENTS, {**SERVER, "spec": {"replicas": 1}}, True, id="C-10-servers"),
    ],
)
def test_changes_that_matter(kind: Resource, after: dict[str, Any], matters: bool) -> None:
    same = {"metadata": after["metadata"]} if "metadata" in after else {}
    before = ownermapping.essence(kind.id, changed(**same))
    assert (ownermapping.essence(kind.id, changed(**after)) != before) is matters


def test_the_time_of_a_condition_does_not_matter() -> None:
    one, other = (
        changed(status={"conditions": [{**PROGRESS, "lastUpdateTime": time}]}) for time in ("now", "then")
    )
    of_kind = MACHINE_DEPLOYMENTS.id
    assert ownermapping.essence(of_kind, one) == ownermapping.essence(of_kind, other)
