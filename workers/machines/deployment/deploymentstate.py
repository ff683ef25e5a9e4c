"""A MachineDeployment with its MachineSets and Machines, as one run sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from windowbox.models.objects import Object
from workers.machines import templates
from workers.machines.deployments import DeploymentSpec
from workers.machines.facts import MachineFacts
from workers.machines.sets import MachineSet


@dataclass(frozen=True)
class State:
    deployment: Object
    spec: DeploymentSpec
    sets: tuple[MachineSet, ...] = ()
    """Those that it owns, the oldest first."""
    machines: Mapping[str, tuple[MachineFacts, ...]] = field(default_factory=dict)
    """The machines of each set, by its uid."""

    @cached_property
    def new(self) -> MachineSet | None:
        """The set of the template as it is now."""
        return next((one for one in self.sets if templates.same(one.template, self.spec.template)), None)

    @cached_property
    def old(self) -> tuple[MachineSet, ...]:
        return tuple(one for one in self.sets if self.new is None or one.uid != self.new.uid)

    @cached_property
    def active(self) -> tuple[MachineSet, ...]:
        """Those that are to have machines."""
        return tuple(one for one in self.sets if one.wanted > 0)

    @property
    def wanted(self) -> int:
        """How many machines the sets are to have."""
        return sum(one.wanted for one in self.sets)

    @property
    def occupied(self) -> int:
        """How many machines there are, or will be made. Those that are being deleted do not count.

        Gardener's own counts them, so that a roll-out stands still behind a slow deletion; and it counts no
        machines that are still to be made, so that it exceeds the surge for a moment.
        """
        return sum(max(one.wanted, self.living(one)) for one in self.sets)

    def living(self, one: MachineSet) -> int:
        """How many machines of a set are not being deleted."""
        return sum(not machine.terminating for machine in self.machines.get(one.uid, ()))
