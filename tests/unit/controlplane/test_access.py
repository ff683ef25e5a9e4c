"""The kubeconfig by which a Shoot takes part."""

from __future__ import annotations

import pytest

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
    ],
)
def test_servers_are_named_for_those_in_another_namespace(server: str, reached: str) -> None:
    assert access.reachable(server, "shoot--a--b") == reached


def test_a_kubeconfig_without_a_server_is_none() -> None:
    assert access.kubeconfig({"clusters": [{"name": "a", "cluster": {}}]}, "shoot--a--b", {}) is None
