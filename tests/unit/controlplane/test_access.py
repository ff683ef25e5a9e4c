"""The kubeconfig by which a Shoot takes part."""

from __future__ import annotations

import base64

import pytest

from windowbox.errors import Malformed
from windowbox.models.objects import Object
from workers.controlplane import access


@pytest.mark.parametrize(
    ("server", "reached"),
    [
        pytest.param("https://kube-apiserver", "https://kube-apiserver.shoot--a--b.svc", id="service"),
        pytest.param("https://kube-apiserver:443", "https://kube-apiserver.shoot--a--b.svc:443", id="port"),
        pytest.param("https://api.example.com", "https://api.example.com", id="full-name"),
        pytest.param("https://10.0.0.1:6443", "https://10.0.0.1:6443", id="address"),
        pytest.param("https://[fd00::1]:6443", "https://[fd00::1]:6443", id="address-of-ipv6"),
        pytest.param("https://localhost:6443", "https://localhost:6443", id="this-host"),
        pytest.param("https://[fd00::1", "https://[fd00::1", id="no-address"),
        pytest.param("https://a:b", "https://a:b", id="no-port"),
    ],
)
def test_servers_are_named_for_those_in_another_namespace(server: str, reached: str) -> None:
    assert access.reachable(server, "shoot--a--b") == reached


def test_a_kubeconfig_without_a_server_is_none() -> None:
    assert access.kubeconfig({"clusters": [{"name": "a", "cluster": {}}]}, "shoot--a--b", {}) is None


def _secret(kubeconfig: bytes) -> Object:
    return Object(
        {
            "metadata": {"name": "generic-token-kubeconfig", "namespace": "shoot--a--b"},
            "data": {"kubeconfig": base64.b64encode(kubeconfig).decode()},
        }
    )


@pytest.mark.parametrize(
    ("kubeconfig", "why"),
    [
        pytest.param(b"a: &a [1]\nb: [*a, *a]", "aliases are not allowed", id="aliases"),
        pytest.param(b"[" * 5000, "5000 lines, keys and lists", id="deep"),
        pytest.param(b"x" * 70_000, "70000 bytes", id="large"),
        pytest.param(b"", "not a mapping", id="empty"),
    ],
)
def test_a_hostile_kubeconfig_is_refused_by_the_name_of_its_secret(kubeconfig: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=f"Secret shoot--a--b/generic-token-kubeconfig.*{why}"):
        access.parsed(_secret(kubeconfig))


def test_a_kubeconfig_may_name_the_file_of_a_token() -> None:
    text = b"users: [{name: a, user: {tokenFile: /var/run/token}}]"
    assert access.parsed(_secret(text))["users"][0]["user"] == {"tokenFile": "/var/run/token"}
