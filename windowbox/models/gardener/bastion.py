"""The Bastion: a machine of a Shoot that can be reached from outside by SSH."""

from __future__ import annotations

from pydantic import Field

from windowbox.models.definitions import AGE, Column, Definition
from windowbox.models.extensions import (
    ATOMIC,
    Bytes,
    ExtensionSpec,
    ExtensionStatus,
    LoadBalancerIngress,
    Part,
)
from windowbox.models.refs import BASTIONS


class IPBlock(Part):
    cidr: str
    except_: list[str] | None = Field(None, alias="except", json_schema_extra=ATOMIC)


class BastionIngress(Part):
    ip_block: IPBlock


class BastionSpec(ExtensionSpec):
    ingress: list[BastionIngress]
    """The sources that may connect."""
    user_data: Bytes
    """What the machine runs when it starts. Never changes."""


class BastionStatus(ExtensionStatus):
    ingress: LoadBalancerIngress | None = None
    """Where to connect to."""


DEFINITIONS = (
    Definition(
        resource=BASTIONS,
        description="A machine of a Shoot that can be reached from outside.",
        spec=BastionSpec,
        status=BastionStatus,
        columns=(
            Column("IP", ".status.ingress.ip"),
            Column("Hostname", ".status.ingress.hostname"),
            AGE,
        ),
    ),
)
