"""The return of a MachineDeployment to a former template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from windowbox.models import machinekeys as keys
from windowbox.models.objects import mapping
from workers.machines import templates
from workers.machines.deployment import machinesets
from workers.machines.deployment.state import State
from workers.machines.sets import MachineSet


@dataclass(frozen=True)
class Rollback:
    """What is told, and the patch of the deployment, which takes the request away."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    patch: dict[str, Any]
    to: MachineSet | None = None


def rollback(state: State) -> Rollback | None:
    """None if nobody asks for it."""
    if state.spec.rollback is None:
        return None
    cleared: dict[str, Any] = {"spec": {"rollbackTo": None}}
    revision = state.spec.rollback or _last(state)
    not_found = "DeploymentRollbackRevisionNotFound"
    if not revision:
        return Rollback("Warning", not_found, "Unable to find last revision.", cleared)
    to = next((one for one in state.sets if one.revision == revision), None)
    if to is None:
        return Rollback("Warning", not_found, "Unable to find the revision to rollback to.", cleared)
    name = state.deployment.name
    if templates.same(to.template, state.spec.template):
        note = f'The rollback revision contains the same template as current deployment "{name}"'
        return Rollback("Warning", "DeploymentRollbackTemplateUnchanged", note, cleared, to)
    labels = mapping(to.template.get("metadata")).get("labels")
    wanted = {**to.template, "metadata": {**mapping(to.template.get("metadata"))}}
    wanted["metadata"]["labels"] = {k: v for k, v in mapping(labels).items() if k != keys.TEMPLATE_HASH}
    patch = {
        "metadata": {"annotations": machinesets.rolled_back_annotations(state, to)},
        "spec": {"rollbackTo": None, "template": templates.replacing(state.spec.template, wanted)},
    }
    note = f'Rolled back deployment "{name}" to revision {revision}'
    return Rollback("Normal", "DeploymentRollback", note, patch, to)


def _last(state: State) -> int:
    """The revision before the newest."""
    return sorted([0, 0, *(one.revision for one in state.sets)])[-2]
