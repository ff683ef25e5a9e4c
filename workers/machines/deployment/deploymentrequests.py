"""Requests to a MachineDeployment: a rollback, and machines that the cluster autoscaler has chosen. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from windowbox.models import machinekeys as keys
from windowbox.models.extensions import instant, spelled
from windowbox.models.objects import Object, mapping
from workers.machines import templates
from workers.machines.deployment.deploymentstate import State
from workers.machines.facts import MachineFacts
from workers.machines.sets import MachineSet

_MOST = 1000
"""Entries of the annotation that are read."""


@dataclass(frozen=True)
class Rollback:
    """The Event about a rollback, and the patch of the deployment, which removes the request."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str
    patch: dict[str, Any]
    to: MachineSet | None = None


@dataclass(frozen=True)
class Chosen:
    """The annotation of the autoscaler as it has to be, and the machines to mark, each with its time."""

    annotation: str | None
    """None to remove it."""
    marks: tuple[tuple[MachineFacts, str], ...] = ()


def rollback(state: State) -> Rollback | None:
    """The rollback to a former template; None without a request."""
    if state.spec.rollback is None:
        return None
    cleared: dict[str, Any] = {"spec": {"rollbackTo": None}}
    # Revision 0 stands for the revision before the newest.
    revision = state.spec.rollback or sorted([0, 0, *(one.revision for one in state.sets)])[-2]
    not_found = "DeploymentRollbackRevisionNotFound"
    if not revision:
        return Rollback("Warning", not_found, "Unable to find last revision.", cleared)
    to = next((one for one in state.sets if one.revision == revision), None)
    if to is None:
        return Rollback("Warning", not_found, "Unable to find the revision to rollback to.", cleared)
    name = state.deployment.name
    # A rollback to the same template would only trigger another run.
    if templates.same(to.template, state.spec.template):
        note = f'The rollback revision contains the same template as current deployment "{name}"'
        return Rollback("Warning", "DeploymentRollbackTemplateUnchanged", note, cleared, to)
    metadata = dict(mapping(to.template.get("metadata")))
    labels = mapping(metadata.get("labels"))
    metadata["labels"] = {name: value for name, value in labels.items() if name != keys.TEMPLATE_HASH}
    template = templates.replacing(state.spec.template, {**to.template, "metadata": metadata})
    patch = {
        "metadata": {"annotations": state.restored_annotations(to)},
        "spec": {"rollbackTo": None, "template": template},
    }
    note = f'Rolled back deployment "{name}" to revision {revision}'
    return Rollback("Normal", "DeploymentRollback", note, patch, to)


def chosen(deployment: Object, machines: Iterable[MachineFacts], now: datetime) -> Chosen | None:
    """The machines that the annotation names, without those that are failed or gone; None without it."""
    text = str(deployment.annotations.get(keys.TRIGGER_DELETION) or "")
    if not text:
        return None
    scaled = str(deployment.annotations.get(keys.SCALER_TIME) or "") or spelled(now)
    by_name = {one.name: one for one in machines}
    kept: list[str] = []
    marks: list[tuple[MachineFacts, str]] = []
    for entry in text.split(",")[:_MOST]:
        name, tilde, time = entry.partition("~")
        # Entries of old autoscalers have no time: they belong to the last change of the replicas.
        time = time if tilde else scaled
        machine = by_name.get(name)
        if instant(time) is None or machine is None or machine.failed or machine.terminating:
            continue
        kept.append(f"{name}~{time}")
        since = machine.annotations.get(keys.MARKED_FOR_DELETION)
        if machine.annotations.get(keys.PRIORITY) != "1" or not since:
            marks.append((machine, since or time))
    return Chosen(",".join(kept) or None, tuple(marks))
