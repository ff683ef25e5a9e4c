"""A run may write while the Lease that it began with exists and is ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.machineapi import LEASE, MachineApi, lease
from windowbox.errors import LeaseLost
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_SETS, MACHINES, NODES
from workers.machines import deployments
from workers.machines.deployment.deploymentrun import DeploymentRun
from workers.machines.deployment.deploymentstate import State

_NODE = Object({"metadata": {"name": "n"}})
_WRITES: dict[str, Callable[[DeploymentRun], Awaitable[Any]]] = {
    "create": lambda run: run.objects.create(MACHINES, {"metadata": {"name": "m"}}),
    "scale": lambda run: run.objects.patch(MACHINE_SETS, "s", {"spec": {"replicas": 1}}),
    "delete": lambda run: run.objects.delete(MACHINES, "m", "u"),
    "node": lambda run: run.nodes.patch(_NODE, {"metadata": {"labels": {"a": "b"}}}),
}

each_write = pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES.keys())


def _run(api: MachineApi) -> DeploymentRun:
    found = Object({"metadata": {"name": "pool"}, "spec": {"replicas": 1}})
    return api.run(State(found, deployments.lenient(found)))


@each_write
@pytest.mark.parametrize(
    "now",
    [
        pytest.param(None, id="deleted"),
        pytest.param(lease(holder="another"), id="taken"),
        pytest.param(lease(uid="later"), id="made-again"),
    ],
)
async def test_nothing_is_written_without_the_lease(
    write: Callable[[DeploymentRun], Awaitable[Any]], now: Object | None
) -> None:
    api = MachineApi()
    run = _run(api)
    del api.stored[LEASE]
    if now:
        api.stored[LEASE] = now
    with pytest.raises(LeaseLost, match="was deleted or taken"):
        await write(run)
    assert api.asked == ["Lease machine-controller-manager"]


async def test_a_mirrored_lease_costs_no_request() -> None:
    api = MachineApi()
    node = api.add(NODES, _NODE)
    assert await _run(api).nodes.patch(node, {"metadata": {"labels": {"a": "b"}}}) is None
    assert api.asked == ["Node n"]
