"""What is taken out of kubeconfigs that somebody else wrote."""

from __future__ import annotations

import base64
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from sandbox.servers import certificates
from tests.support import loopback
from windowbox.clients.kubernetes import kube, kubeconfigs
from windowbox.errors import Malformed

WHAT = "Secret garden/cloudprovider"


def of_user(**user: object) -> bytes:
    return yaml.safe_dump({"clusters": [], "users": [{"name": "x", "user": user}]}).encode()


@pytest.mark.parametrize(
    ("kubeconfig", "told"),
    [
        pytest.param(b"a: [", "is not YAML", id="K-1-no-yaml"),
        pytest.param(b"\x00\xff", "is not YAML", id="K-1-no-text"),
        pytest.param(b"[" * 3000, "is not YAML", id="K-1-nested-without-end"),
        pytest.param(b"[" * 50_000, "has 50000 lines, keys and lists", id="K-1-too-many-lists"),
        pytest.param(b"a: 1\n" * 10_000, "give one of at most 4000", id="K-1-too-many-keys"),
        pytest.param(b"just words", "is not a mapping", id="K-1-no-mapping"),
        pytest.param(b"a: &b [1]\nc: *b", "aliases are not allowed", id="K-1-alias"),
        pytest.param(b"a: " + b"b" * 70_000, "at most 65536", id="K-1-too-long"),
        pytest.param(of_user(exec={"command": "touch"}), r"users\[0\].user.exec is not", id="K-1-exec"),
        pytest.param(of_user(**{"auth-provider": {}}), "auth-provider is not", id="K-1-auth-provider"),
        pytest.param(of_user(tokenFile="token"), "tokenFile is not allowed", id="K-1-token-file"),
        pytest.param(of_user(**{"client-key": "key"}), "client-key is not allowed", id="K-1-key-file"),
        pytest.param(
            of_user(**{"as": "eve"}), r"users\[0\].user.as is not supported", id="K-1-impersonation"
        ),
        pytest.param(of_user(**{"as-groups": ["a"]}), "as-groups is not supported", id="K-1-other-groups"),
        pytest.param(
            of_user(**{"client-certificate": "x"}), "client-certificate is not", id="K-1-certificate-file"
        ),
    ],
)
def test_what_may_harm_is_refused_by_name(kubeconfig: bytes, told: str) -> None:
    with pytest.raises(Malformed, match=told) as refused:
        kubeconfigs.harmless(kubeconfig, WHAT)
    assert refused.value.codes == ("ERR_CONFIGURATION_PROBLEM",)
    assert str(refused.value).startswith(WHAT)


def test_what_stands_inline_is_taken() -> None:
    inline = of_user(**{"client-key-data": "a2V5", "token": "t"})
    assert kubeconfigs.harmless(inline, WHAT) == yaml.safe_load(inline)


async def test_a_cluster_with_inline_certificates_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = base64.b64encode(certificates.authority(tmp_path / "ca").certificate.read_bytes()).decode()
    cluster = {"server": "https://a", "certificate-authority-data": authority}
    content = {
        "users": [{"name": "a", "user": {"token": "t"}}],
        "clusters": [{"name": "a", "cluster": cluster}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    (tmp_path / "files").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "files"))
    trusts = []
    for _ in range(2):
        async with kube.from_text(yaml.safe_dump(content).encode(), WHAT, loopback.EGRESS) as client:
            trusts.append(client.trust)
        assert not list((tmp_path / "files").iterdir())  # no copy of a certificate or key is left
    assert trusts[0] == trusts[1] not in (None, "public")


NO_URLS = [None, 5, "https://", "api.example.com:6443", "file:///etc/passwd", "https://[::1", "//x"]


@pytest.mark.parametrize("url", ["", "https://a/?x=/api", "https://user:password@a", *NO_URLS])
def test_a_server_that_is_no_url_is_refused(url: object) -> None:
    with pytest.raises(Malformed, match="the kubeconfig's server is no URL") as refused:
        kubeconfigs.check_addresses(url, None, loopback.EGRESS, WHAT)
    assert "password" not in str(refused.value)


@pytest.mark.parametrize("url", [True, ["a"], *NO_URLS[1:]])
async def test_a_proxy_that_is_no_url_is_refused(url: object) -> None:
    content = {
        "users": [{"name": "a", "user": {"token": "t"}}],
        "clusters": [{"name": "a", "cluster": {"server": "https://a", "proxy-url": url}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    with pytest.raises(Malformed, match="the kubeconfig's proxy-url is no URL"):
        async with kube.from_text(yaml.safe_dump(content).encode(), WHAT, loopback.EGRESS):
            pass


@pytest.mark.parametrize("url", ["https://api.example.com:6443", "https://[::1]:6443/k8s/a", "http://a"])
def test_a_server_that_is_a_url_is_taken(url: str) -> None:
    kubeconfigs.check_addresses(url, url, loopback.EGRESS, WHAT)


def test_trust_is_the_set_of_authorities(tmp_path: Path) -> None:
    one = certificates.authority(tmp_path / "one").certificate
    other = certificates.authority(tmp_path / "other").certificate
    both, turned = tmp_path / "both.crt", tmp_path / "turned.crt"
    both.write_text(one.read_text() + other.read_text())
    turned.write_text("# in another order\n" + other.read_text() + "\n" + one.read_text() + one.read_text())

    def trust(authorities: Path) -> str | None:
        return kubeconfigs.trust("https://api", True, authorities)

    assert trust(both) == trust(turned)
    assert len({trust(one), trust(other), trust(both)}) == 3


def test_nobody_vouches_for_a_server_that_proves_nothing(tmp_path: Path) -> None:
    authority, empty = certificates.authority(tmp_path).certificate, tmp_path / "empty"
    empty.touch()
    assert kubeconfigs.trust("https://api", False, authority) is None
    assert kubeconfigs.trust("http://api", True, authority) is None
    assert kubeconfigs.trust("https://api", True, empty) is None
    assert kubeconfigs.trust("https://api", True, None) == "public"


def test_authorities_that_only_begin_are_read_in_linear_time(tmp_path: Path) -> None:
    endless = tmp_path / "endless.pem"
    endless.write_text("-----BEGIN CERTIFICATE-----\n" * 40_000)
    begun = time.process_time()
    assert kubeconfigs.trust("https://api", True, endless) is None
    assert time.process_time() - begun < 5  # some milliseconds; a lazy regular expression took minutes
