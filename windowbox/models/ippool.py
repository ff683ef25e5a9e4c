"""Calico's IPPool, as far as it is needed where Calico is not: the sandbox, and tests."""

from __future__ import annotations

from windowbox.models.extensions import Part


class IPPoolSpec(Part):
    cidr: str
    ipip_mode: str | None = None
    nat_outgoing: bool | None = None
    node_selector: str | None = None
