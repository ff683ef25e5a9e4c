"""The fields of a Worker's status besides its last operation and its conditions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from windowbox.models.extensions import TIMESTAMP, instant, spelled
from windowbox.models.objects import Object, mapping
from workers.core.lifecycle.actuators import Status
from workers.machines.facts import number
from workers.machines.worker.workergroups import Group

_SECOND = timedelta(seconds=1)


def secrets_are_written(worker: Object) -> bool:
    """Whether an earlier run for the same request has written all Secrets.

    It has, if the client knows the MachineDeployments. Without a time in the request, a failure may have
    answered an earlier request.
    """
    asked = instant(worker.annotations.get(TIMESTAMP))
    failed = worker.last_operation.get("state") == "Error"
    return _is_listed(worker) and not (asked is None and failed)


def machine_deployments(worker: Object, groups: Sequence[Group], now: datetime) -> Status:
    """The list of MachineDeployments, reported before they have machines; empty if it is reported.

    gardenlet starts the autoscaler with it, as soon as its time is later than the request and than the time
    that gardenlet knows.
    """
    listed = [
        {"name": group.name, "minimum": group.minimum, "maximum": group.maximum}
        | ({} if group.pool.priority is None else {"priority": group.pool.priority})
        for group in groups
    ]
    if not groups or (_is_listed(worker) and worker.status.get("machineDeployments") == listed):
        return {}
    known = instant(worker.status.get("machineDeploymentsLastUpdateTime"))
    asked = instant(worker.annotations.get(TIMESTAMP))
    times = [now, *([known + _SECOND] if known else [])]
    if asked and asked <= now + timedelta(minutes=5):  # a clock that is far ahead is not followed
        # The status has whole seconds: rounded down, its time would be before the request.
        times.append(asked if asked.microsecond == 0 else asked.replace(microsecond=0) + _SECOND)
    return {"machineDeployments": listed, "machineDeploymentsLastUpdateTime": spelled(max(times))}


def in_place_hashes(worker: Object, groups: Iterable[Group], found: Mapping[str, Object]) -> Status:
    """A merge patch with the hash of each pool whose machines have all been updated in place."""
    before = mapping(mapping(worker.status.get("inPlaceUpdates")).get("workerPoolToHashMap"))
    pools: dict[str, list[Group]] = {}
    for group in groups:
        if group.in_place:
            pools.setdefault(group.pool.name, []).append(group)
    after = {}
    for name, members in pools.items():
        # If a person chooses the nodes, a Worker may be ready before the pool is updated.
        chosen = [found.get(group.name) for group in members if group.manual]
        updated = all(
            one and number(one.status.get("updatedReplicas")) >= number(one.status.get("replicas"))
            for one in chosen
        )
        if hash_ := members[0].in_place_hash if updated else before.get(name):
            after[name] = hash_
    if after == before:
        return {}
    gone = {name: None for name in before if name not in after}
    return {"inPlaceUpdates": {"workerPoolToHashMap": {**gone, **after}} if after else None}


def _is_listed(worker: Object) -> bool:
    """Whether the status lists the MachineDeployments of the last request."""
    listed = instant(worker.status.get("machineDeploymentsLastUpdateTime"))
    asked = instant(worker.annotations.get(TIMESTAMP))
    if listed is None or worker.last_operation.get("state") == "Succeeded":
        return False
    return asked is None or asked <= listed
