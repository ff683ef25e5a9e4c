"""The SelfHostedShootExposure: the way to the API server of a Shoot that hosts itself."""

from __future__ import annotations

from windowbox.models.definitions import AGE, TYPE, Column, Definition, state
from windowbox.models.extensions import (
    ExtensionSpec,
    ExtensionStatus,
    Int32,
    LoadBalancerIngress,
    ObjectReference,
    Part,
)
from windowbox.models.refs import EXPOSURES


class NodeAddress(Part):
    address: str
    type: str
    """InternalIP, ExternalIP, Hostname, InternalDNS or ExternalDNS."""


class Endpoint(Part):
    addresses: list[NodeAddress]
    node_name: str


class ExposureSpec(ExtensionSpec):
    credentials_ref: ObjectReference | None = None
    """The Secret with the kubeconfig of the cluster that the machines run in."""
    endpoints: list[Endpoint]
    """The nodes that the API server runs on."""
    port: Int32


class ExposureStatus(ExtensionStatus):
    ingress: list[LoadBalancerIngress] | None = None
    """Where the API server is reached."""


DEFINITIONS = (
    Definition(
        resource=EXPOSURES,
        description="The way to the API server of a Shoot that hosts itself.",
        spec=ExposureSpec,
        status=ExposureStatus,
        columns=(
            TYPE,
            Column("IP", ".status.ingress[0].ip"),
            Column("Hostname", ".status.ingress[0].hostname"),
            state("Status"),
            AGE,
        ),
    ),
)
