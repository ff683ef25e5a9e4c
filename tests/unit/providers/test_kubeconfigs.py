"""Kubeconfigs that somebody else wrote: what they may hold, and which addresses they may name."""

from __future__ import annotations

import base64
import contextlib
import tempfile
import time
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
import yaml
import yarl

from sandbox.servers import certificates
from tests.support import loopback
from tests.support.cases import cases
from tests.support.tenantconfigs import naming
from windowbox.clients.kubernetes import kube, kubeconfigs
from windowbox.clients.kubernetes.egress import Egress
from windowbox.errors import Malformed

WHAT = "Secret garden/cloudprovider"


def of_user(**user: object) -> bytes:
    return yaml.safe_dump({"clusters": [], "users": [{"name": "x", "user": user}]}).encode()


@cases(
    "kubeconfig reported",
    ("K-1-no-yaml", b"a: [", "is not YAML"),
    ("K-1-no-text", b"\x00\xff", "is not YAML"),
    ("K-1-nested-without-end", b"[" * 3000, "is not YAML"),
    ("K-1-too-many-lists", b"[" * 50_000, "has 50000 lines, keys and lists"),
    ("K-1-too-many-keys", b"a: 1\n" * 10_000, "give one of at most 4000"),
    ("K-1-no-mapping", b"just words", "is not a mapping"),
    ("K-1-alias", b"a: &b [1]\nc: *b", "aliases are not allowed"),
    ("K-1-too-long", b"a: " + b"b" * 70_000, "at most 65536"),
    ("K-1-exec", of_user(exec={"command": "touch"}), r"users\[0\].user.exec is not"),
    ("K-1-auth-provider", of_user(**{"auth-provider": {}}), "auth-provider is not"),
    ("K-1-token-file", of_user(tokenFile="token"), "tokenFile is not allowed"),
    ("K-1-key-file", of_user(**{"client-key": "key"}), "client-key is not allowed"),
    ("K-1-other-user", of_user(**{"as": "eve"}), r"users\[0\].user.as is not supported"),
    ("K-1-other-groups", of_user(**{"as-groups": ["a"]}), "as-groups is not supported"),
    ("K-1-cert-file", of_user(**{"client-certificate": "x"}), "client-certificate is not"),
)
def test_what_may_harm_is_refused_by_name(kubeconfig: bytes, reported: str) -> None:
    with pytest.raises(Malformed, match=reported) as refused:
        kubeconfigs.harmless(kubeconfig, WHAT)
    assert refused.value.codes == ("ERR_CONFIGURATION_PROBLEM",)
    assert str(refused.value).startswith(WHAT)


def test_inline_credentials_are_accepted() -> None:
    inline = of_user(**{"client-key-data": "a2V5", "token": "t"})
    assert kubeconfigs.harmless(inline, WHAT) == yaml.safe_load(inline)


async def test_a_cluster_with_inline_certificates_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = base64.b64encode(certificates.authority(tmp_path / "ca").certificate.read_bytes()).decode()
    content = naming("https://a", {"certificate-authority-data": authority})
    (tmp_path / "files").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "files"))
    trusts = []
    for _ in range(2):
        async with kube.from_text(content, WHAT, loopback.EGRESS) as client:
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
    content = naming("https://a", {"proxy-url": url})
    with pytest.raises(Malformed, match="the kubeconfig's proxy-url is no URL"):
        async with kube.from_text(content, WHAT, loopback.EGRESS):
            pass


@pytest.mark.parametrize("server", ["https://api.example.com:6443", "https://[::1]:6443", "http://a"])
@pytest.mark.parametrize("path", ["", "/", "/k8s/clusters/c-m-abc12", "/apis/v1/proxy/a_b/~c"])
def test_a_url_with_a_plain_path_is_taken(server: str, path: str) -> None:
    kubeconfigs.check_addresses(server + path, server + path, loopback.EGRESS, WHAT)


def unproven(folder: Path) -> Iterator[bytes]:
    """Kubeconfigs with which anything that listens at the address would be spoken to."""
    pem = certificates.authority(folder).certificate.read_bytes()
    odd = base64.b64encode(pem.replace(b" CERTIFICATE", b" TRUSTED CERTIFICATE")).decode()
    yield naming("http://a")
    yield naming("https://a", {"insecure-skip-tls-verify": True})
    yield naming("https://a", {"insecure-skip-tls-verify": "false"})
    yield naming("https://a", {"certificate-authority-data": odd})


async def test_a_server_that_tls_does_not_prove_is_refused(tmp_path: Path) -> None:
    for content in unproven(tmp_path):
        with pytest.raises(Malformed, match="nothing proves which server the kubeconfig leads to"):
            async with kube.from_text(content, WHAT, loopback.EGRESS):
                pass


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


def test_an_unverified_server_has_no_trust(tmp_path: Path) -> None:
    authority, empty = certificates.authority(tmp_path).certificate, tmp_path / "empty"
    empty.touch()
    assert kubeconfigs.trust("https://api", False, authority) is None
    assert kubeconfigs.trust("http://api", True, authority) is None
    assert kubeconfigs.trust("https://api", True, empty) is None
    assert kubeconfigs.trust("https://api", True, None) == "public"


@pytest.mark.parametrize("large", [False, True])
async def test_a_large_key_of_a_client_is_refused(tmp_path: Path, large: bool) -> None:
    pair = certificates.client(certificates.authority(tmp_path), tmp_path, "user")
    # It takes minutes to generate one of 16,384 bits: this one is as long.
    files = {
        "client-certificate-data": pair.certificate.read_bytes(),
        "client-key-data": large * (9_000 * b"#" + b"\n") + pair.key.read_bytes(),
    }
    content = naming(
        "https://a", user={name: base64.b64encode(data).decode() for name, data in files.items()}
    )
    with pytest.raises(Malformed, match="bytes: give a key") if large else contextlib.nullcontext():
        async with kube.from_text(content, WHAT, loopback.EGRESS):
            pass


def test_authorities_that_only_begin_are_read_in_linear_time(tmp_path: Path) -> None:
    endless = tmp_path / "endless.pem"
    endless.write_text("-----BEGIN CERTIFICATE-----\n" * 40_000)
    begun = time.process_time()
    assert kubeconfigs.trust("https://api", True, endless) is None
    assert time.process_time() - begun < 5  # some milliseconds; a lazy regular expression took minutes


OWN = Egress((ip_network("10.0.0.0/8"), ip_network("fd00::/8")), (ip_network("10.1.2.3/32"),))


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.254", "169.254.169.254", "100.100.100.200"),
        *("168.63.129.16", "192.0.0.192"),
        *("224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fd00:ec2::254", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1"),
        *("64:ff9b::169.254.169.254", "2002:7f00:1::1"),
    ],
)
def test_loopback_and_link_local_are_denied_however_they_are_spelled(address: str) -> None:
    assert not Egress().permits(ip_address(address))
    assert not Egress().permits_host(address)


@pytest.mark.parametrize(
    ("address", "permitted"),
    [
        *(("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("64:ff9b::a00:1", False), ("fd00::1", False)),
        *(("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("192.0.2.1", True), ("2001:db8::1", True)),
    ],
)
def test_own_networks_are_denied_but_for_exceptions(address: str, permitted: bool) -> None:
    assert OWN.permits(ip_address(address)) is permitted


def test_exceptions_permit_addresses_denied_by_default() -> None:
    assert loopback.EGRESS.permits(ip_address("127.0.0.1"))
    assert loopback.EGRESS.permits(ip_address("::1"))
    assert not loopback.EGRESS.permits(ip_address("169.254.169.254"))


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"])
@pytest.mark.parametrize("where", ["server", "proxy-url"])
def test_a_denied_address_in_a_kubeconfig_is_named(host: str, where: str) -> None:
    good, bad = "https://api.example.com", f"https://{host}:6443"
    server, proxy = (bad, None) if where == "server" else (good, bad)
    with pytest.raises(Malformed, match=rf"it: the kubeconfig's {where} is at .* egress\.denied"):
        kubeconfigs.check_addresses(server, proxy, Egress(), "it")


@pytest.mark.parametrize(
    "path",
    ["/latest/meta-data/%2e%2e", "/a/../b", "/./a", "/" + "a" * 256, "/a b", "/a;b", "/a\\b", "/ä"],
)
def test_a_path_that_may_mean_another_one_is_refused(path: str) -> None:
    with pytest.raises(Malformed, match="the path of the kubeconfig's server"):
        kubeconfigs.check_addresses(f"https://api.example.com{path}", None, Egress(), "it")


@pytest.mark.parametrize(
    "text",
    [
        "https://127.0.0.1:6443/apis/extensions.gardener.cloud/v1alpha1/namespaces/a/dnsrecords/b.c/status",
        "https://kubernetes.default.svc:443/api/v1",
        "http://one/",
        "https://[::1]:6443/version",
        "https://One/api/v1/namespaces/a/../b",
        "https://one/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node ä?x\r\ny",
        "https://one/apis/x/y/.hidden",
        "https://one/prefix//twice",
    ],
)
def test_plain_urls_are_those_that_encoding_would_make(text: str) -> None:
    assert kube.url(text) == yarl.URL(text)
    assert str(kube.url(text)) == str(yarl.URL(text))
