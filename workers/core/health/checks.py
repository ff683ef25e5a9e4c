"""Health checks: pure functions of the objects that they look at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from windowbox.models.objects import Object, mapping, mappings
from workers.core.owned import managedresources

_MACHINES_MANDATORY = (("Available", "True"),)
_MACHINES_OPTIONAL = (("Progressing", "True"), ("ReplicaFailure", "False"), ("Frozen", "False"))
_DEPLOYMENT_OPTIONAL = (("Progressing", "True"), ("ReplicaFailure", "False"))


@dataclass(frozen=True)
class Passed:
    """All is well."""


@dataclass(frozen=True)
class Unsuccessful:
    detail: str
    codes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Progressing:
    """Not well yet, which is no failure before the threshold."""

    detail: str
    codes: tuple[str, ...] = ()
    threshold: timedelta | None = None


@dataclass(frozen=True)
class Errored:
    """The check itself could not be made."""

    detail: str


Result = Passed | Unsuccessful | Progressing | Errored


def nodes(deployments: Iterable[Object]) -> Result:
    """Whether the MachineDeployments are healthy. Counts of nodes are gardenlet's own check."""
    found = sorted(deployments, key=lambda one: one.name)
    for machine, reason in failed_machines(found):
        return Unsuccessful(f'machine "{machine}" failed: {reason}')
    for one in found:
        if reason := unhealthy_machines(one):
            return Unsuccessful(
                f'machine deployment "{one.name}" in namespace "{one.namespace}" is unhealthy: {reason}'
            )
    return Passed()


def managed_resource(namespace: str, name: str, found: Object | None) -> Result:
    """Whether what the ManagedResource holds is applied and healthy."""
    what = f'managed resource "{name}" in namespace "{namespace}"'
    if found is None:
        return Unsuccessful(f"{what} not found")
    if problem := managedresources.unhealthy(found):
        return Unsuccessful(f"{what} is unhealthy: {problem}", managedresources.problem_codes(problem))
    return Passed()


def deployment(namespace: str, name: str, found: Object | None) -> Result:
    what = f'deployment "{name}" in namespace "{namespace}"'
    if found is None:
        return Unsuccessful(f"{what} not found")
    if problem := _problem(found, (("Available", "True"),), _DEPLOYMENT_OPTIONAL):
        return Unsuccessful(f"{what} is unhealthy: {problem}")
    return Passed()


def unhealthy_machines(deployment: Object) -> str:
    """Why a MachineDeployment is not healthy; empty if it is."""
    return _problem(deployment, _MACHINES_MANDATORY, _MACHINES_OPTIONAL)


def failed_machines(deployments: Iterable[Object]) -> list[tuple[str, str]]:
    """The machines that have failed, each with the reason."""
    return [
        (str(one.get("name", "")), str(mapping(one.get("lastOperation")).get("description", "")))
        for deployment in deployments
        for one in mappings(deployment.status.get("failedMachines"))
    ]


def _problem(
    found: Object, mandatory: tuple[tuple[str, str], ...], optional: tuple[tuple[str, str], ...]
) -> str:
    observed = found.status.get("observedGeneration") or 0
    if observed < found.generation:
        return f"observed generation outdated ({observed}/{found.generation})"
    conditions = {one.get("type"): one for one in mappings(found.status.get("conditions"))}
    for type_, status in (*mandatory, *optional):
        condition = conditions.get(type_)
        if condition is None and (type_, status) in mandatory:
            return f'condition "{type_}" is missing'
        if condition is not None and condition.get("status") != status:
            return f"{str(condition.get('message', '')).strip('.')} ({condition.get('reason', '')})"
    return ""
