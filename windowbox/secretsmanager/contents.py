"""Reads generated secrets: subject and validity of certificates. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from datetime import timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from windowbox.secretsmanager.configs import Authority, BasicAuth, Certificate, Config, Usage
from windowbox.secretsmanager.secrets import Stored

CA_CERTIFICATE = "ca.crt"
CA_KEY = "ca.key"
CERTIFICATE = "tls.crt"
KEY = "tls.key"
BUNDLE = "bundle.crt"
USER_NAME = "username"
PASSWORD = "password"
AUTH = "auth"

_TOLERANCE = timedelta(days=2)
"""Tolerated between the requested validity and that of the certificate, which may follow the calendar."""
_UNUSABLE = (
    ValueError,
    TypeError,
    KeyError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""Raised by the library for certificates and keys that persons and other programs have put there."""
_USAGES = {Usage.SERVER: ExtendedKeyUsageOID.SERVER_AUTH, Usage.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH}


def keys(config: Config) -> tuple[str, ...]:
    """The keys of the data of a Secret."""
    match config:
        case Authority():
            return (CA_CERTIFICATE, CA_KEY)
        case Certificate():
            return (CERTIFICATE, KEY, *((CA_CERTIFICATE,) if config.publish_authority else ()))
        case BasicAuth():
            return (USER_NAME, PASSWORD, AUTH)


def complete(config: Config, data: Mapping[str, bytes]) -> bool:
    """Whether the data has all keys, and certificate and private key belong together; CAs have RSA keys."""
    if not all(key in data and (data[key] or key == USER_NAME) for key in keys(config)):
        return False
    if isinstance(config, BasicAuth):
        return True
    certificate, private = keys(config)[:2]
    try:
        # Whether the key's numbers are primes takes 90 ms to check. That both parts fit together is enough.
        key = serialization.load_pem_private_key(data[private], None, unsafe_skip_rsa_key_validation=True)
        same = x509.load_pem_x509_certificate(data[certificate]).public_key() == key.public_key()
    except _UNUSABLE:
        return False
    # Other keys sign nothing here.
    return same and (isinstance(key, rsa.RSAPrivateKey) or not isinstance(config, Authority))


def fits(config: Config, data: Mapping[str, bytes], signer: Stored | None) -> bool:
    """Whether data that is complete is what the config asks for."""
    if isinstance(config, BasicAuth):
        return data[USER_NAME] == config.user_name.encode() and len(data[PASSWORD]) == config.password_length
    try:
        certificate = x509.load_pem_x509_certificate(data[keys(config)[0]])
        lasts = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        if abs(lasts - config.validity) > _TOLERANCE:
            return False
        if isinstance(config, Authority):
            return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        return _is_for(config, certificate) and _is_signed(config, certificate, data, signer)
    except _UNUSABLE:
        return False


def is_trusted(config: Certificate, data: Mapping[str, bytes], bundle: bytes) -> bool:
    """Whether the certificate is for the hosts of the config, and signed by an authority of the bundle."""
    try:
        certificate = x509.load_pem_x509_certificate(data[CERTIFICATE])
        authorities = x509.load_pem_x509_certificates(bundle)
        return _is_for(config, certificate) and any(_signed(certificate, one) for one in authorities)
    except _UNUSABLE:
        return False


def lifetime(data: Mapping[str, bytes]) -> tuple[int, int] | None:
    """Begin and end of the validity of the certificate in the data, as unix times; None if there is none."""
    pem = data.get(CERTIFICATE) or data.get(CA_CERTIFICATE)
    if not pem:
        return None
    certificate = x509.load_pem_x509_certificate(pem)
    return (
        int(certificate.not_valid_before_utc.timestamp()),
        int(certificate.not_valid_after_utc.timestamp()),
    )


def _is_for(config: Certificate, certificate: x509.Certificate) -> bool:
    organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    addresses = {ipaddress.ip_address(one) for one in config.ip_addresses}
    try:
        hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found_names = set(hosts.get_values_for_type(x509.DNSName))
        found_addresses = set(hosts.get_values_for_type(x509.IPAddress))
    except x509.ExtensionNotFound:
        found_names, found_addresses = set(), set()
    return (
        (str(names[0].value) if names else "") == config.common_name
        and {one.value for one in organizations} == set(config.organizations)
        and found_names == set(config.dns_names)
        and found_addresses == addresses
        and _USAGES[config.usage] in usage
    )


def _is_signed(
    config: Certificate, certificate: x509.Certificate, data: Mapping[str, bytes], signer: Stored | None
) -> bool:
    if signer is None:
        return False
    published = data.get(CA_CERTIFICATE)
    if published != (signer.data[CA_CERTIFICATE] if config.publish_authority else None):
        return False
    try:
        authority = x509.load_pem_x509_certificate(signer.data[CA_CERTIFICATE])
    except _UNUSABLE:
        return False
    return _signed(certificate, authority)


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, *_UNUSABLE):
        return False
    return True
