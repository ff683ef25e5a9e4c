"""The Infrastructure: the place where the machines of a Shoot live."""

from __future__ import annotations

from pydantic import Field

from windowbox.models.definitions import AGE, REGION, TYPE, Definition, state
from windowbox.models.extensions import Bytes, ExtensionSpec, ExtensionStatus, Part, SecretReference
from windowbox.models.refs import INFRASTRUCTURES


class InfrastructureSpec(ExtensionSpec):
    region: str
    secret_ref: SecretReference
    """The Secret with the kubeconfig of the cluster that the machines run in."""
    ssh_public_key: Bytes | None = None


class Networking(Part):
    nodes: list[str] | None = None
    pods: list[str] | None = None
    services: list[str] | None = None


class InfrastructureStatus(ExtensionStatus):
    egress_cidrs: list[str] | None = Field(None, alias="egressCIDRs")
    """From where the Shoot's machines reach others."""
    networking: Networking | None = None
    nodes_cidr: str | None = Field(None, alias="nodesCIDR")


DEFINITIONS = (
    Definition(
        resource=INFRASTRUCTURES,
        description="The place where the machines of a Shoot live.",
        spec=InfrastructureSpec,
        status=InfrastructureStatus,
        columns=(TYPE, REGION, state("Status"), AGE),
    ),
)
