"""What all certificates begin with: names, a key, a number, and when they are valid."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID


def name(common_name: str, organizations: Iterable[str] = ()) -> x509.Name:
    """Of a subject; Kubernetes reads organizations as groups."""
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def head(
    subject: x509.Name, issuer: x509.Name, key: CertificatePublicKeyTypes, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )
