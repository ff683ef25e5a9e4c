"""Generates keys, certificates and passwords. It takes tenths of a second: not for the event loop."""

from __future__ import annotations

import ipaddress
import secrets as random
import string
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import bcrypt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificateIssuerPrivateKeyTypes,
    CertificatePublicKeyTypes,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from windowbox.secretsmanager import contents
from windowbox.secretsmanager.configs import Authority, BasicAuth, Certificate, Usage

_BITS = 3072
BEFORE = timedelta(minutes=1)
"""Certificates are valid from a little before, for clocks that are behind."""
_ROUNDS = 10
"""The cost of bcrypt that Gardener uses: 2^10."""
_ALPHABET = string.ascii_letters + string.digits


def authority(config: Authority, secret_name: str, now: datetime) -> dict[str, bytes]:
    """The data of a Secret with a new CA."""
    key = _key()
    name = x509_name(secret_name)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _builder(name, name, key, now, config.validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(_authority_identifier(identifier), critical=False)
    )
    return {contents.CA_CERTIFICATE: signed(builder, key), contents.CA_KEY: pem(key)}


def certificate(config: Certificate, signer: Mapping[str, bytes], now: datetime) -> dict[str, bytes]:
    """The data of a Secret with a new certificate, given the data of the CA that signs it."""
    issuer = x509.load_pem_x509_certificate(signer[contents.CA_CERTIFICATE])
    issuer_key = serialization.load_pem_private_key(signer[contents.CA_KEY], password=None)
    if not isinstance(issuer_key, rsa.RSAPrivateKey):
        raise ValueError("the CA's key is no RSA key")
    key = ec.generate_private_key(ec.SECP256R1()) if config.elliptic else _key()
    subject = x509_name(config.common_name, config.organizations)
    purpose = {Usage.SERVER: ExtendedKeyUsageOID.SERVER_AUTH, Usage.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH}
    builder = (
        _builder(subject, issuer.subject, key, now, config.validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose[config.usage]]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_authority_identifier(_identifier(issuer)), critical=False)
    )
    hosts = [x509.DNSName(one) for one in config.dns_names]
    addresses = [x509.IPAddress(ipaddress.ip_address(one)) for one in config.ip_addresses]
    if hosts or addresses:
        builder = builder.add_extension(x509.SubjectAlternativeName([*hosts, *addresses]), critical=False)
    data = {contents.CERTIFICATE: signed(builder, issuer_key), contents.KEY: pem(key)}
    if config.publish_authority:
        data[contents.CA_CERTIFICATE] = signer[contents.CA_CERTIFICATE]
    return data


def basic_auth(config: BasicAuth) -> dict[str, bytes]:
    """The data of a Secret with a new password, also as a line of a file for HTTP servers."""
    password = "".join(random.choice(_ALPHABET) for _ in range(config.password_length)).encode()
    hashed = bcrypt.hashpw(password, bcrypt.gensalt(_ROUNDS, prefix=b"2a"))
    user = config.user_name.encode()
    return {contents.USER_NAME: user, contents.PASSWORD: password, contents.AUTH: user + b":" + hashed}


def unmanaged(
    authority_config: Authority, server: Certificate, now: datetime
) -> tuple[Mapping[str, bytes], Mapping[str, bytes]]:
    """A CA and a certificate that are kept in no Secret: the data of both."""
    made = authority(authority_config, authority_config.name, now)
    return made, certificate(server, made, now)


def bundle(*authorities: Mapping[str, bytes]) -> bytes:
    """The certificates of CAs, the current one first."""
    return b"".join(one[contents.CA_CERTIFICATE].strip() + b"\n" for one in authorities)


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=_BITS)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey,
    now: datetime,
    validity: timedelta,
) -> x509.CertificateBuilder:
    return head(subject, issuer, key.public_key(), now - BEFORE, now + validity)


def usage(*, signs: bool) -> x509.KeyUsage:
    """`signs`: whether the key signs certificates. Python 3.13 trusts no authority without this extension."""
    return x509.KeyUsage(
        key_cert_sign=signs, crl_sign=signs, digital_signature=True, key_encipherment=True,
        content_commitment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip


def _identifier(authority: x509.Certificate) -> x509.SubjectKeyIdentifier:
    """The identifier in the CA's certificate: since Go 1.25, it is another digest of the key than ours."""
    try:
        return authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.SubjectKeyIdentifier.from_public_key(authority.public_key())


def _authority_identifier(identifier: x509.SubjectKeyIdentifier) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def signed(builder: x509.CertificateBuilder, key: CertificateIssuerPrivateKeyTypes) -> bytes:
    """The certificate as PEM."""
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def pem(key: CertificateIssuerPrivateKeyTypes) -> bytes:
    """The private key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,  # PKCS #1 or SEC 1, as Gardener writes its keys
        serialization.NoEncryption(),
    )


def x509_name(common_name: str, organizations: Iterable[str] = ()) -> x509.Name:
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
