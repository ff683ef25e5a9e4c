"""How machines are made, and how long they may take. A Machine's own fields come first."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class MachineSettings(BaseModel):
    """Machines of Shoots: MachineDeployments, MachineSets, Machines and their Pods."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["full", "driver", "off"] = Field(
        "full",
        description="full: windowbox does all; driver: it makes the Pods of Machines, and Gardener's "
        "machine-controller-manager the Machines; off: neither.",
    )
    resources: bool = Field(
        False, description="Give machine Pods the CPU, memory, zone and volumes of their machine type."
    )
    docker_socket: bool = Field(
        False, description="Mount the host's Docker socket into machine Pods, as Gardener's own does."
    )
    creation_timeout: float = Field(
        1200.0, gt=0, description="Seconds until a Machine that has not joined is Failed."
    )
    health_timeout: float = Field(
        600.0, gt=0, description="Seconds until a Machine with an unhealthy node is Failed."
    )
    drain_timeout: float = Field(
        7200.0, gt=0, description="Seconds until a drain deletes Pods instead of evicting them."
    )
    in_place_timeout: float = Field(
        1200.0, gt=0, description="Seconds until an update in place that has no result has failed."
    )
    preserve_timeout: float = Field(
        345600.0, gt=0, description="Seconds for which a Failed Machine is preserved."
    )
    evict_retries: int = Field(360, ge=1, description="How often the eviction of a Pod is tried.")
    node_conditions: tuple[str, ...] = Field(
        ("KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable"),
        description="Conditions of a node that make its Machine unhealthy.",
    )
    safety_up: int = Field(2, ge=0, description="Machines beyond the surge at which a MachineSet is frozen.")
    safety_down: int = Field(1, ge=0, description="How many Machines below that limit unfreeze it.")
