"""Specs of MachineDeployments."""

from __future__ import annotations

import pytest

from windowbox.errors import Malformed
from windowbox.models.objects import Object
from workers.machines import deployments


def test_a_spoilt_deployment_can_still_be_deleted() -> None:
    spoilt = Object({"metadata": {"name": "pool"}, "spec": {"replicas": "many", "strategy": {"type": "No"}}})
    with pytest.raises(Malformed):
        deployments.checked(spoilt)
    assert deployments.lenient(spoilt).replicas == 0
