"""Generated certificates and passwords, and whether they fit a config."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import bcrypt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.secretsmanager import contents, generation
from windowbox.secretsmanager.configs import Authority, BasicAuth, Certificate, Config, Usage
from windowbox.secretsmanager.secrets import Stored

NOW = datetime(2026, 9, 1, tzinfo=UTC)
CA = Authority("ca", validity=timedelta(days=30))
SERVER = Certificate(
    "server", "server", "ca", Usage.SERVER, dns_names=("a.example",), ip_addresses=("10.0.0.1", "fd00::1")
)


def holding(data: Mapping[str, bytes]) -> Stored:
    return Stored("ca-1", "uid", 0, {}, data)


@pytest.fixture(scope="module")
def authority() -> dict[str, bytes]:
    return generation.authority(CA, "ca-1", NOW)


@pytest.fixture(scope="module")
def server(authority: dict[str, bytes]) -> dict[str, bytes]:
    return generation.certificate(SERVER, authority, NOW)


@rule("Z-7")
def test_the_lifetime_of_a_certificate_is_read(authority: dict[str, bytes], server: dict[str, bytes]) -> None:
    start = int(NOW.timestamp())
    assert contents.lifetime(authority) == (start - 60, start + 30 * 86400)
    assert contents.lifetime(server) == (start - 60, start + 3652 * 86400)
    assert contents.lifetime({}) is None


@rule("Z-3")
@pytest.mark.parametrize("days", [3650, 3652, 3653], ids=lambda days: f"{days}-days")
def test_ten_years_fit_by_the_calendar_and_by_days(days: int) -> None:
    """Gardener's end at the same date of the calendar; those of version 0.1.0 lasted 3,650 days."""
    made = generation.authority(Authority("ca", validity=timedelta(days=days)), "ca-1", NOW)
    assert contents.fits(Authority("ca"), made, None)


@rule("Z-1")
def test_an_authority_is_named_after_its_secret(authority: dict[str, bytes]) -> None:
    found = x509.load_pem_x509_certificate(authority["ca.crt"])
    assert found.subject.rfc4514_string() == "CN=ca-1"
    key = found.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    assert key.key_size == 3072
    found.verify_directly_issued_by(found)


def test_a_certificate_may_have_the_key_of_a_curve(authority: dict[str, bytes]) -> None:
    made = generation.certificate(replace(SERVER, elliptic=True), authority, NOW)
    assert contents.complete(SERVER, made)
    assert contents.fits(SERVER, made, holding(authority))
    found = x509.load_pem_x509_certificate(made["tls.crt"])
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(authority["ca.crt"]))
    key = found.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"


@cases(
    "config fits",
    ("Z-3-same", SERVER, True),
    ("Z-3-the-name-is-a-label", replace(SERVER, name="other"), True),
    ("Z-3-common-name", replace(SERVER, common_name="other"), False),
    ("Z-3-organization", replace(SERVER, organizations=("a",)), False),
    ("Z-3-dns-names", replace(SERVER, dns_names=()), False),
    ("Z-3-addresses", replace(SERVER, ip_addresses=("10.0.0.1",)), False),
    ("Z-3-usage", replace(SERVER, usage=Usage.CLIENT), False),
    ("Z-3-validity", replace(SERVER, validity=timedelta(days=30)), False),
    ("Z-3-authority-is-lacking", replace(SERVER, publish_authority=True), False),
)
def test_whether_a_certificate_fits_its_config(
    config: Certificate, fits: bool, authority: dict[str, bytes], server: dict[str, bytes]
) -> None:
    found = contents.complete(config, server) and contents.fits(config, server, holding(authority))
    assert found == fits


@rule("Z-3")
def test_fits_depend_on_authority_and_validity(authority: dict[str, bytes], server: dict[str, bytes]) -> None:
    other = generation.authority(CA, "ca-1", NOW)
    assert not contents.fits(SERVER, server, holding(other))
    assert not contents.fits(SERVER, server, None)
    assert contents.fits(CA, authority, None)
    assert not contents.fits(replace(CA, validity=timedelta(days=3650)), authority, None)
    leaf = {"ca.crt": server["tls.crt"], "ca.key": server["tls.key"]}
    assert not contents.fits(replace(CA, validity=timedelta(days=3650)), leaf, None)


@pytest.mark.parametrize("key", ["tls.crt", "tls.key"])
@cases("value", ("empty", b""), ("nonsense", b"nonsense"), ("missing", None))
def test_data_that_is_broken_is_not_complete(key: str, value: bytes | None, server: dict[str, bytes]) -> None:
    broken = {name: one for name, one in (server | {key: value}).items() if one is not None}
    assert not contents.complete(SERVER, broken)


def test_a_key_of_an_unknown_kind_is_not_complete(server: dict[str, bytes]) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    der = key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    unknown = base64.encodebytes(der.replace(b"\x2b\x65\x70", b"\x2b\x65\x7f"))
    private = b"-----BEGIN PRIVATE KEY-----\n" + unknown + b"-----END PRIVATE KEY-----\n"
    assert not contents.complete(SERVER, server | {"tls.key": private})


def test_a_key_that_belongs_to_another_certificate_is_not_complete(
    authority: dict[str, bytes], server: dict[str, bytes]
) -> None:
    assert not contents.complete(SERVER, server | {"tls.key": authority["ca.key"]})


def test_only_authorities_need_an_rsa_key() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + timedelta(days=1))
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = builder.sign(key, hashes.SHA256()).public_bytes(pem)
    assert contents.complete(SERVER, {"tls.crt": public, "tls.key": private})
    assert not contents.complete(CA, {"ca.crt": public, "ca.key": private})


def test_a_certificate_names_its_authority_as_the_authority_does() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = generation.x509_name("ca")
    # Go 1.25 and newer take another digest of the key.
    chosen = x509.SubjectKeyIdentifier(b"chosen by Go")
    head = generation.head(name, name, key.public_key(), NOW, NOW + timedelta(days=30))
    foreign = generation.signed(head.add_extension(chosen, critical=False), key)
    made = generation.certificate(
        SERVER, {contents.CA_CERTIFICATE: foreign, contents.CA_KEY: generation.pem(key)}, NOW
    )
    issued = x509.load_pem_x509_certificate(made[contents.CERTIFICATE])
    identifier = issued.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert identifier.key_identifier == chosen.digest


def test_a_password_and_its_hash_belong_together() -> None:
    made = generation.basic_auth(BasicAuth("auth", "admin"))
    assert len(made["password"]) == 32
    user, _, hashed = made["auth"].partition(b":")
    assert user == made["username"] == b"admin"
    assert hashed.startswith(b"$2a$10$")
    assert bcrypt.checkpw(made["password"], hashed)
    config: Config = BasicAuth("auth", "admin")
    assert contents.complete(config, made)
    assert contents.fits(config, made, None)
    assert not contents.fits(BasicAuth("auth", "other"), made, None)
    assert not contents.fits(BasicAuth("auth", "admin", password_length=31), made, None)


@rule("WF-65")
def test_certificates_are_made_without_secrets() -> None:
    authority, server = generation.unmanaged(Authority("provider-local"), SERVER, NOW)
    found = x509.load_pem_x509_certificate(authority["ca.crt"])
    assert found.subject.rfc4514_string() == "CN=provider-local"
    x509.load_pem_x509_certificate(server["tls.crt"]).verify_directly_issued_by(found)


def test_a_certificate_is_trusted_by_bundle_and_hosts(
    authority: dict[str, bytes], server: dict[str, bytes]
) -> None:
    other = generation.authority(CA, "ca-2", NOW)
    both = generation.bundle(other, authority)
    assert contents.is_trusted(SERVER, server, both)
    assert not contents.is_trusted(SERVER, server, generation.bundle(other))
    assert not contents.is_trusted(replace(SERVER, dns_names=("b.example",)), server, both)
    assert not contents.is_trusted(SERVER, {}, both)
