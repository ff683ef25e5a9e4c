"""What a Worker reports besides the outcome of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from windowbox.models.extensions import TIMESTAMP, instant, spelled
from windowbox.models.gardener.cloudprofile import CloudProfileSpec
from windowbox.models.objects import Object, mapping
from workers.core.lifecycle.kinds import Status
from workers.machines.worker import images
from workers.machines.worker.wanted import Group

_SECOND = timedelta(seconds=1)


def answered(worker: Object) -> bool:
    """Whether this is not the first run of what the client asks for: it knows the MachineDeployments, so that
    all Secrets were written before. Of a client that sends no time, a failure may have been its last request.
    """
    asked = instant(worker.annotations.get(TIMESTAMP))
    failed = worker.last_operation.get("state") == "Error"
    return _is_told(worker) and not (asked is None and failed)


def deployments(worker: Object, groups: Sequence[Group], now: datetime) -> Status:
    """The MachineDeployments, before they have machines: with them, gardenlet starts the autoscaler.

    It waits for a time later than the one it knows, and than its request.
    """
    listed = [_listed(group) for group in groups]
    if not groups or (_is_told(worker) and worker.status.get("machineDeployments") == listed):
        return {}
    told, asked = _told(worker), instant(worker.annotations.get(TIMESTAMP))
    times = [now, *([told + _SECOND] if told else [])]
    if asked and asked <= now + timedelta(minutes=5):
        times.append(asked if asked.microsecond == 0 else asked.replace(microsecond=0) + _SECOND)
    return {"machineDeployments": listed, "machineDeploymentsLastUpdateTime": spelled(max(times))}


def machine_images(worker: Object, groups: Iterable[Group], profile: CloudProfileSpec) -> Status:
    return {"providerStatus": images.status((group.image for group in groups), profile)}


def in_place_hashes(worker: Object, groups: Iterable[Group], found: Mapping[str, Object]) -> Status:
    """The hash of each pool that is updated in place, once all its machines are; a merge patch."""
    before = mapping(mapping(worker.status.get("inPlaceUpdates")).get("workerPoolToHashMap"))
    of_pools: dict[str, list[Group]] = {}
    for group in groups:
        if group.in_place:
            of_pools.setdefault(group.pool.name, []).append(group)
    after = {
        name: hash_
        for name, members in of_pools.items()
        if (hash_ := members[0].in_place_hash if _all_updated(members, found) else before.get(name))
    }
    if after == before:
        return {}
    gone = {name: None for name in before if name not in after}
    return {"inPlaceUpdates": {"workerPoolToHashMap": {**gone, **after}} if after else None}


def _all_updated(members: Iterable[Group], found: Mapping[str, Object]) -> bool:
    """Where a person chooses the nodes, a pool may be ready before it is updated."""
    return all(not group.manual or _updated(found.get(group.name)) for group in members)


def _updated(deployment: Object | None) -> bool:
    if deployment is None:
        return False
    status = deployment.status
    return int(status.get("updatedReplicas") or 0) >= int(status.get("replicas") or 0)


def _listed(group: Group) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": group.name, "minimum": group.minimum, "maximum": group.maximum}
    return entry if group.pool.priority is None else {**entry, "priority": group.pool.priority}


def _is_told(worker: Object) -> bool:
    """Whether the client knows MachineDeployments of its last request."""
    told, asked = _told(worker), instant(worker.annotations.get(TIMESTAMP))
    if told is None or worker.last_operation.get("state") == "Succeeded":
        return False
    return asked is None or asked <= told


def _told(worker: Object) -> datetime | None:
    return instant(worker.status.get("machineDeploymentsLastUpdateTime"))
