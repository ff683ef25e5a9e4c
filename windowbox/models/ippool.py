"""Calico's IPPool, as far as it is needed where Calico is not: the sandbox, and tests."""

from __future__ import annotations

from windowbox.models.definitions import AGE, Column, Definition
from windowbox.models.extensions import Part
from windowbox.models.refs import IP_POOLS


class IPPoolSpec(Part):
    cidr: str
    ipip_mode: str | None = None
    nat_outgoing: bool | None = None
    node_selector: str | None = None


DEFINITIONS = (
    Definition(
        resource=IP_POOLS,
        description="Addresses that Calico gives to Pods. Defined here where there is no Calico.",
        spec=IPPoolSpec,
        columns=(Column("CIDR", ".spec.cidr"), AGE),
    ),
)
