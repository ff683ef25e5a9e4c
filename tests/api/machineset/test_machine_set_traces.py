"""`windowbox trace` of a MachineDeployment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import traces
from tests.support.machines import MachineClient, deployment

pytestmark = pytest.mark.serves("machinedeployment", "machineset")


async def test_a_complete_deployment_waits_to_renew_the_lease(client: MachineClient, tmp_path: Path) -> None:
    await client.make(deployment(replicas=1))
    await client.until_complete()
    [told] = await traces.waiting(client.shoot, "machinedeployment", "pool", tmp_path)
    assert told["title"].startswith("machinedeployment: again at ")
    assert told["details"] == [
        "because: the Lease machine-controller-manager of its namespace is renewed then"
    ]
