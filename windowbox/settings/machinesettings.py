"""Settings of machines. Fields of a Machine take precedence."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class MachineSettings(BaseModel):
    """Machines of Shoots: MachineDeployments, MachineSets, Machines and their Pods."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["full", "driver", "off"] = Field(
        "full",
        description="`full`: MachineDeployments, MachineSets and Machines. `driver`: only the Pods of "
        "Machines, for Gardener's machine-controller-manager. `off`: none.",
    )
    resources: bool = Field(
        False, description="Give machine Pods the CPU, memory, zone and volumes of their machine type."
    )
    docker_socket: bool = Field(
        False,
        description="Mount the host's Docker socket into machine Pods, as Gardener's provider-local does.",
    )
    creation_timeout: float = Field(
        1200.0, gt=0, description="Seconds after which a Machine that has not joined is Failed."
    )
    health_timeout: float = Field(
        600.0, gt=0, description="Seconds after which a Machine with an unhealthy node is Failed."
    )
    drain_timeout: float = Field(
        7200.0, gt=0, description="Seconds after which a drain deletes Pods instead of evicting them."
    )
    in_place_timeout: float = Field(
        1200.0, gt=0, description="Seconds after which an in-place update without a result has failed."
    )
    preserve_timeout: float = Field(
        345600.0, gt=0, description="Seconds for which a Failed Machine is preserved."
    )
    evict_retries: int = Field(360, ge=1, description="Attempts to evict a Pod.")
    node_conditions: tuple[str, ...] = Field(
        ("KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable"),
        description="Conditions of a node that make its Machine unhealthy.",
    )
    safety_up: int = Field(
        2, ge=0, description="Machines beyond replicas and surge at which a MachineSet is frozen."
    )
    safety_down: int = Field(1, ge=0, description="Machines below that limit at which it is unfrozen.")
