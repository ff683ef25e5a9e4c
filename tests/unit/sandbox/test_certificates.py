"""Certificates that the sandbox finds, and may go on with."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from windowbox.sandbox import certificates
from windowbox.sandbox.certificates import Pair


@pytest.fixture
def ca(tmp_path: Path) -> Pair:
    return certificates.authority(tmp_path / "ours")


def test_a_certificate_of_this_authority_with_its_key_will_do(ca: Pair, tmp_path: Path) -> None:
    assert certificates.holds(ca, _file(tmp_path, certificates.client(ca, tmp_path, "node")))


def test_a_certificate_of_another_authority_of_the_same_name_will_not_do(ca: Pair, tmp_path: Path) -> None:
    other = certificates.authority(tmp_path / "theirs")
    assert not certificates.holds(ca, _file(tmp_path, certificates.client(other, tmp_path, "node")))


def test_a_certificate_whose_time_is_over_will_not_do(ca: Pair, tmp_path: Path) -> None:
    pair = certificates.client(ca, tmp_path, "node")
    _backdate(ca, pair)
    assert not certificates.holds(ca, _file(tmp_path, pair))


def test_a_certificate_without_its_key_will_not_do(ca: Pair, tmp_path: Path) -> None:
    assert not certificates.holds(ca, certificates.client(ca, tmp_path, "node").certificate)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="no-file"),
        pytest.param("", id="empty"),
        pytest.param("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", id="garbage"),
    ],
)
def test_what_is_no_certificate_will_not_do(content: str | None, ca: Pair, tmp_path: Path) -> None:
    path = tmp_path / "node.pem"
    if content is not None:
        path.write_text(content)
    assert not certificates.holds(ca, path)


def _file(folder: Path, pair: Pair) -> Path:
    """Both in one file, as a kubelet keeps them."""
    path = folder / "node.pem"
    path.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    return path


def _backdate(ca: Pair, pair: Pair) -> None:
    """Let the certificate have ended yesterday."""
    found = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    key = serialization.load_pem_private_key(ca.key.read_bytes(), password=None)
    public = found.public_key()
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(found.subject)
        .issuer_name(found.issuer)
        .public_key(public)
        .serial_number(found.serial_number)
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now - datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pair.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
