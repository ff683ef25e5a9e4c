"""The DNSRecord: a name that should resolve."""

from __future__ import annotations

from windowbox.models.extensions import ExtensionSpec, ExtensionStatus, SecretReference


class DNSRecordSpec(ExtensionSpec):
    name: str
    record_type: str
    values: list[str]
    secret_ref: SecretReference
    region: str | None = None
    ttl: int | None = None
    zone: str | None = None


class DNSRecordStatus(ExtensionStatus):
    zone: str | None = None
