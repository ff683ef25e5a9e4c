"""Whether MachineDeployments are healthy, and the condition that says so of a Worker."""

from __future__ import annotations

from collections.abc import Iterable

from windowbox.errors import TransientError
from windowbox.models.objects import Object, mapping, mappings
from workers.lifecycle.statuses import Condition

EVERY_NODE_READY = "EveryNodeReady"
RETRY_FAILED = 30.0
"""Seconds until machines are looked at again of which one has failed."""
_MANDATORY = (("Available", "True"),)
_OPTIONAL = (("Progressing", "True"), ("ReplicaFailure", "False"), ("Frozen", "False"))


def unhealthy(deployment: Object) -> str:
    """Why a MachineDeployment is not healthy; empty if it is."""
    observed = deployment.status.get("observedGeneration") or 0
    if observed < deployment.generation:
        return f"observed generation outdated ({observed}/{deployment.generation})"
    conditions = {one.get("type"): one for one in mappings(deployment.status.get("conditions"))}
    for type_, status in (*_MANDATORY, *_OPTIONAL):
        found = conditions.get(type_)
        if found is None and (type_, status) in _MANDATORY:
            return f'condition "{type_}" is missing'
        if found is not None and found.get("status") != status:
            return f"{str(found.get('message', '')).strip('.')} ({found.get('reason', '')})"
    return ""


def failures(deployments: Iterable[Object]) -> list[tuple[str, str]]:
    """The machines that have failed, each with the reason."""
    return [
        (str(one.get("name", "")), str(mapping(one.get("lastOperation")).get("description", "")))
        for deployment in deployments
        for one in mappings(deployment.status.get("failedMachines"))
    ]


def require_none_failed(deployments: Iterable[Object]) -> None:
    """Raise the failure of the first machine that has failed."""
    if failed := failures(deployments):
        name, reason = failed[0]
        raise TransientError(f"machine {name} failed: {reason}", retry_after=RETRY_FAILED)


def every_node_ready(deployments: Iterable[Object], *, hibernated: bool) -> Condition:
    """What is to be said of the nodes."""
    if hibernated:
        return _healthy("Shoot is hibernated")
    found = sorted(deployments, key=lambda deployment: deployment.name)
    for machine, reason in failures(found):
        return _unhealthy(f'machine "{machine}" failed: {reason}')
    for one in found:
        if reason := unhealthy(one):
            return _unhealthy(
                f'machine deployment "{one.name}" in namespace "{one.namespace}" is unhealthy: {reason}'
            )
    return _healthy("All health checks successful")


def _healthy(message: str) -> Condition:
    return Condition(EVERY_NODE_READY, "True", "HealthCheckSuccessful", message)


def _unhealthy(message: str) -> Condition:
    return Condition(EVERY_NODE_READY, "False", "HealthCheckUnsuccessful", message)
