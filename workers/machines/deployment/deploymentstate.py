"""A MachineDeployment with its MachineSets and Machines, and the MachineSet of its template. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.machines import StrategyType
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import MACHINE_SETS
from workers.core.owned.manifests import manifest
from workers.machines import facts, names, templates
from workers.machines.deployments import DeploymentSpec
from workers.machines.facts import MachineFacts, strings
from workers.machines.sets import MachineSet

_NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        keys.REVISION,
        keys.REVISION_HISTORY,
        keys.DESIRED_REPLICAS,
        keys.MAX_REPLICAS,
        keys.PREFER_NO_SCHEDULE,
        keys.UNFREEZE,
        keys.TRIGGER_DELETION,
    }
)
"""Annotations of a MachineDeployment that its MachineSets do not get."""


@dataclass(frozen=True)
class State:
    """A MachineDeployment with its sets and machines, as one run sees them."""

    deployment: Object
    spec: DeploymentSpec
    sets: tuple[MachineSet, ...] = ()
    """The sets that it owns, the oldest first."""
    machines: Mapping[str, tuple[MachineFacts, ...]] = field(default_factory=dict)
    """The machines of each set, by its uid."""

    @cached_property
    def new(self) -> MachineSet | None:
        """The set of the current template."""
        return next((one for one in self.sets if templates.same(one.template, self.spec.template)), None)

    @cached_property
    def old(self) -> tuple[MachineSet, ...]:
        return tuple(one for one in self.sets if self.new is None or one.uid != self.new.uid)

    @cached_property
    def active(self) -> tuple[MachineSet, ...]:
        """The sets that are to have machines."""
        return tuple(one for one in self.sets if one.wanted > 0)

    @property
    def wanted(self) -> int:
        """How many machines the sets are to have."""
        return sum(one.wanted for one in self.sets)

    @property
    def occupied(self) -> int:
        """How many machines exist or will be created, without those that are being deleted.

        Gardener's own controller counts machines that are being deleted, so that a roll-out stands still
        behind a slow deletion; and it does not count machines that are still to be created, so that it
        exceeds the surge for a moment.
        """
        return sum(max(one.wanted, len(self.living(one))) for one in self.sets)

    def living(self, one: MachineSet) -> list[MachineFacts]:
        """The machines of a set that are not being deleted."""
        return [machine for machine in self.machines.get(one.uid, ()) if not machine.terminating]

    def nodes(self, one: MachineSet) -> list[str]:
        """The names of the nodes of a set."""
        return [machine.node for machine in self.machines.get(one.uid, ()) if machine.node]

    @property
    def revision(self) -> int:
        """The revision of the current template."""
        return max((one.revision for one in self.old), default=0) + 1

    @property
    def size_annotations(self) -> dict[str, str]:
        """The annotations of a set that hold the size that it was sized for."""
        surge = self.spec.surge if self.spec.strategy == StrategyType.ROLLING_UPDATE else 0
        return {
            keys.DESIRED_REPLICAS: str(self.spec.replicas),
            keys.MAX_REPLICAS: str(self.spec.replicas + surge),
        }

    @property
    def copied_annotations(self) -> dict[str, str]:
        """The annotations of the deployment that its newest set gets, too."""
        found = strings(self.deployment.annotations)
        return {name: value for name, value in found.items() if name not in _NOT_COPIED}

    @property
    def _copied_fields(self) -> dict[str, int]:
        return {
            "minReadySeconds": self.spec.min_ready,
            "autoPreserveFailedMachineMax": self.spec.auto_preserve,
        }

    def new_set(self, replicas: int, collisions: int) -> dict[str, Any]:
        """The manifest of the MachineSet of the current template."""
        template = templates.pruned(self.spec.template)
        # The hash makes the name and the selector. Sets are found by their templates, not by this hash.
        digits = names.template_hash(template, collisions)
        metadata = dict(template.get("metadata", {}))
        labels = {**metadata.get("labels", {}), keys.TEMPLATE_HASH: digits}
        selector = templates.pruned(self.spec.selector)
        matched = {**selector.get("matchLabels", {}), keys.TEMPLATE_HASH: digits}
        spec = {
            "replicas": replicas,
            "selector": {**selector, "matchLabels": matched},
            "template": {**template, "metadata": {**metadata, "labels": labels}},
            **self._copied_fields,
        }
        name = names.set_name(self.deployment.name, digits)
        owners = [facts.owner_reference(self.deployment, "MachineDeployment")]
        made = manifest(MACHINE_SETS, name, labels=labels, owners=owners, spec=spec)
        revision = {keys.REVISION: str(self.revision)}
        annotations = {**self.copied_annotations, **revision, **self.size_annotations}
        made["metadata"] |= {"annotations": annotations, "finalizers": [keys.FINALIZER]}
        return made

    def set_patch(self, new: MachineSet) -> dict[str, Any]:
        """The merge patch of the newest set, with changes of the deployment that replace no machines."""
        patch: dict[str, Any] = {}
        have = new.object.spec
        fields: dict[str, Any] = {
            name: value
            for name, value in self._copied_fields.items()
            if facts.number(have.get(name)) != value
        }
        spec = templates.differences(mapping(new.template.get("spec")), self.spec.template)
        if spec:
            fields["template"] = {"spec": spec}
        if fields:
            patch["spec"] = fields
        annotations = {
            name: value
            for name, value in self.copied_annotations.items()
            if new.annotations.get(name) != value
        }
        if new.revision < self.revision:
            annotations[keys.REVISION] = str(self.revision)
        if (annotations or spec) and new.revision:
            history = new.annotations.get(keys.REVISION_HISTORY, "")
            annotations[keys.REVISION_HISTORY] = ",".join(filter(None, (history, str(new.revision))))[-1000:]
        if annotations:
            patch["metadata"] = {"annotations": annotations}
        return patch

    def restored_annotations(self, to: MachineSet) -> dict[str, str | None]:
        """The patch of the deployment's annotations back to those that it had with this set."""
        gone: dict[str, str | None] = dict.fromkeys(self.copied_annotations)
        return gone | {name: value for name, value in to.annotations.items() if name not in _NOT_COPIED}

    @property
    def surplus(self) -> list[MachineSet]:
        """Old sets without machines, beyond the history that is kept."""
        if self.spec.history is None:
            return []
        kept = [one for one in self.old if not one.object.deleting]
        first = kept[: max(0, len(kept) - self.spec.history)]
        return [one for one in first if not (one.wanted or one.existing) and one.observed]
