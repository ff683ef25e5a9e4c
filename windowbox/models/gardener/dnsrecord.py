"""The DNSRecord: a name that should resolve."""

from __future__ import annotations

from windowbox.models.definitions import AGE, TYPE, Column, Definition, state
from windowbox.models.extensions import ExtensionSpec, ExtensionStatus, Int64, SecretReference
from windowbox.models.refs import DNSRECORDS


class DNSRecordSpec(ExtensionSpec):
    name: str
    """The full name, like api.example.com or *.ingress.example.com. Never changes."""
    record_type: str
    """A, AAAA, CNAME or TXT. Never changes."""
    values: list[str]
    """Addresses, texts, or the one name that a CNAME stands for."""
    secret_ref: SecretReference
    """The Secret with the credentials for the zone."""
    region: str | None = None
    ttl: Int64 | None = None
    """Seconds for which an answer may be remembered. Not given means 120."""
    zone: str | None = None
    """The zone to write to. Not given means the longest one that the name lies in."""


class DNSRecordStatus(ExtensionStatus):
    zone: str | None = None
    """The zone that was written to."""


DEFINITIONS = (
    Definition(
        resource=DNSRECORDS,
        description="A name that should resolve.",
        spec=DNSRecordSpec,
        status=DNSRecordStatus,
        columns=(
            TYPE,
            Column("Domain Name", ".spec.name"),
            Column("Record Type", ".spec.recordType"),
            state("Status"),
            AGE,
        ),
    ),
)
