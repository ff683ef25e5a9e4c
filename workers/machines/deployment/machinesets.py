"""The MachineSet of a MachineDeployment's template: how it is made, and how it follows the deployment."""

from __future__ import annotations

from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.objects import mapping
from windowbox.models.refs import MACHINE_SETS
from workers.machines import facts, names, templates
from workers.machines.deployment import scaling
from workers.machines.deployment.state import State
from workers.machines.facts import strings
from workers.machines.sets import MachineSet

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NOT_COPIED = frozenset(
    {
        _LAST_APPLIED,
        keys.REVISION,
        keys.REVISION_HISTORY,
        keys.DESIRED_REPLICAS,
        keys.MAX_REPLICAS,
        keys.PREFER_NO_SCHEDULE,
        keys.UNFREEZE,
        keys.TRIGGER_DELETION,
    }
)


def made(state: State, replicas: int, collisions: int) -> dict[str, Any]:
    """The MachineSet of the template, with so many machines."""
    template = templates.pruned(state.spec.template)
    digits = names.template_hash(template, collisions)
    metadata = dict(template.get("metadata", {}))
    labels = {**metadata.get("labels", {}), keys.TEMPLATE_HASH: digits}
    selector = templates.pruned(state.spec.selector)
    annotations = {
        **copied_annotations(state),
        keys.REVISION: str(revision(state)),
        **scaling.noted(state),
    }
    return {
        "apiVersion": f"{MACHINE_SETS.group}/{MACHINE_SETS.version}",
        "kind": MACHINE_SETS.kind,
        "metadata": {
            "name": names.set_name(state.deployment.name, digits),
            "labels": labels,
            "annotations": annotations,
            "finalizers": [keys.FINALIZER],
            "ownerReferences": [facts.owner_reference(state.deployment, "MachineDeployment")],
        },
        "spec": {
            "replicas": replicas,
            "selector": {
                **selector,
                "matchLabels": {**selector.get("matchLabels", {}), keys.TEMPLATE_HASH: digits},
            },
            "template": {**template, "metadata": {**metadata, "labels": labels}},
            **_copied_fields(state),
        },
    }


def changes(state: State, new: MachineSet) -> dict[str, Any]:
    """The merge patch by which the set follows what of the deployment replaces no machines."""
    patch: dict[str, Any] = {}
    fields: dict[str, Any] = {
        name: value
        for name, value in _copied_fields(state).items()
        if facts.number(new.object.spec.get(name)) != value
    }
    spec = templates.differences(mapping(new.template.get("spec")), state.spec.template)
    if spec:
        fields["template"] = {"spec": spec}
    if fields:
        patch["spec"] = fields
    annotations = {
        name: value for name, value in copied_annotations(state).items() if new.annotations.get(name) != value
    }
    if new.revision < revision(state):
        annotations[keys.REVISION] = str(revision(state))
    if (annotations or spec) and new.revision:
        history = new.annotations.get(keys.REVISION_HISTORY, "")
        annotations[keys.REVISION_HISTORY] = ",".join(filter(None, (history, str(new.revision))))[-1000:]
    if annotations:
        patch["metadata"] = {"annotations": annotations}
    return patch


def revision(state: State) -> int:
    """Of the template as it is now."""
    return max((one.revision for one in state.old), default=0) + 1


def copied_annotations(state: State) -> dict[str, str]:
    """Those of a deployment that its newest set bears, too."""
    found = strings(state.deployment.annotations)
    return {name: value for name, value in found.items() if name not in _NOT_COPIED}


def rolled_back_annotations(state: State, to: MachineSet) -> dict[str, str | None]:
    """The changes that give a deployment the annotations that it had with this set."""
    gone: dict[str, str | None] = dict.fromkeys(copied_annotations(state))
    return gone | {name: value for name, value in to.annotations.items() if name not in _NOT_COPIED}


def surplus(state: State) -> list[MachineSet]:
    """Old sets beyond the history that is kept, of those that have no machines left."""
    if state.spec.history is None:
        return []
    cleanable = [one for one in state.old if not one.object.deleting]
    first = cleanable[: max(0, len(cleanable) - state.spec.history)]
    return [one for one in first if not (one.wanted or one.existing) and one.observed]


def _copied_fields(state: State) -> dict[str, int]:
    return {
        "minReadySeconds": state.spec.min_ready,
        "autoPreserveFailedMachineMax": state.spec.auto_preserve,
    }
