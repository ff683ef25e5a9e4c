"""MachineSets, as read by their MachineDeployments and their own runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object, mapping
from workers.machines.facts import controller, number, strings


@dataclass(frozen=True)
class MachineSet:
    """One version of a MachineSet. Fields of the wrong type read as empty."""

    object: Object

    @property
    def name(self) -> str:
        return self.object.name

    @property
    def uid(self) -> str:
        return self.object.uid

    @property
    def owner(self) -> str:
        """The uid of its controller."""
        return str((controller(self.object) or {}).get("uid", ""))

    @property
    def age(self) -> tuple[str, str]:
        """A sort key: oldest first."""
        return str(self.object.metadata.get("creationTimestamp") or ""), self.name

    @property
    def wanted(self) -> int:
        return number(self.object.spec.get("replicas"))

    @property
    def template(self) -> Mapping[str, Any]:
        return mapping(self.object.spec.get("template"))

    @property
    def labels(self) -> dict[str, str]:
        return strings(self.object.labels)

    @property
    def annotations(self) -> dict[str, str]:
        return strings(self.object.annotations)

    @property
    def frozen(self) -> bool:
        return self.labels.get(keys.FREEZE) == "True"

    @property
    def observed(self) -> bool:
        """Whether its status is about its current spec."""
        return number(self.object.status.get("observedGeneration")) >= self.object.generation

    @property
    def existing(self) -> int:
        return self.count("replicas")

    @property
    def ready(self) -> int:
        return self.count("readyReplicas")

    @property
    def available(self) -> int:
        return self.count("availableReplicas")

    @property
    def preserved(self) -> int:
        return self.count("preservedFailedReplicas")

    @property
    def revision(self) -> int:
        return integer(self.annotations.get(keys.REVISION)) or 0

    def count(self, field: str) -> int:
        """A number of its status."""
        return number(self.object.status.get(field))

    @property
    def failures(self) -> list[Any]:
        failed = self.object.status.get("failedMachines")
        return failed if isinstance(failed, list) else []


def integer(value: object) -> int | None:
    """The number in an annotation; None if it is none."""
    try:
        return int(str(value))
    except ValueError:
        return None


def oldest_first(sets: Iterable[MachineSet]) -> list[MachineSet]:
    return sorted(sets, key=lambda one: one.age)
