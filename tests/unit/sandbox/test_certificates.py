"""Certificates that the sandbox finds, and may go on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.servers import certificates
from sandbox.servers.certificates import Pair
from tests.support.cases import cases
from tests.support.natstls import backdate


@pytest.fixture
def ca(tmp_path: Path) -> Pair:
    return certificates.authority(tmp_path / "ours")


def test_a_matching_certificate_is_kept(ca: Pair, tmp_path: Path) -> None:
    assert certificates.holds(ca, _file(tmp_path, certificates.client(ca, tmp_path, "node")))


def test_certificates_of_a_namesake_authority_are_replaced(ca: Pair, tmp_path: Path) -> None:
    other = certificates.authority(tmp_path / "theirs")
    assert not certificates.holds(ca, _file(tmp_path, certificates.client(other, tmp_path, "node")))


def test_an_expired_certificate_is_replaced(ca: Pair, tmp_path: Path) -> None:
    pair = certificates.client(ca, tmp_path, "node")
    backdate(ca, pair)
    assert not certificates.holds(ca, _file(tmp_path, pair))


def test_a_certificate_without_its_key_will_not_do(ca: Pair, tmp_path: Path) -> None:
    assert not certificates.holds(ca, certificates.client(ca, tmp_path, "node").certificate)


@cases(
    "content",
    ("no-file", None),
    ("empty", ""),
    ("garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
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
