"""Which existing certificates the sandbox keeps."""

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


def test_only_a_valid_certificate_of_the_same_authority_is_kept(ca: Pair, tmp_path: Path) -> None:
    pair = certificates.client(ca, tmp_path, "node")
    assert certificates.holds(ca, _file(tmp_path, pair))
    assert not certificates.holds(ca, pair.certificate), "without its key"
    backdate(ca, pair)
    assert not certificates.holds(ca, _file(tmp_path, pair)), "expired"
    namesake = certificates.authority(tmp_path / "theirs")
    assert not certificates.holds(
        ca, _file(tmp_path, certificates.client(namesake, tmp_path / "theirs", "node"))
    )


@cases(
    "content",
    ("no-file", None),
    ("empty", ""),
    ("garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
)
def test_a_file_without_a_certificate_is_rejected(content: str | None, ca: Pair, tmp_path: Path) -> None:
    path = tmp_path / "node.pem"
    if content is not None:
        path.write_text(content)
    assert not certificates.holds(ca, path)


def _file(folder: Path, pair: Pair) -> Path:
    """Both in one file, as a kubelet keeps them."""
    path = folder / "node.pem"
    path.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    return path
