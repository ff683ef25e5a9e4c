"""What happens to Pods that ask for names of Shoots, in old versions of Gardener."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.admitted import admitted, refusal
from tests.support.cases import cases
from tests.support.rules import rule

SERVICE = {"spec": {"clusterIPs": ["10.2.0.10", "fd00::10"]}}
COMMON = {
    "networking.gardener.cloud/to-istio-ingressgateway",
    "networking.resources.gardener.cloud/to-gardener-extension-provider-local-coredns-coredns-tcp-9053",
    "networking.resources.gardener.cloud/to-gardener-extension-provider-local-coredns-coredns-udp-9053",
}
OF_MACHINES = "networking.resources.gardener.cloud/to-all-istio-ingresses-istio-ingressgateway-tcp-9443"


def pod(**labels: str) -> dict[str, Any]:
    metadata = {"name": "any", "namespace": "shoot--a--b", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"dnsConfig": {"searches": ["x"]}},
    }


def deployment(name: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": {}}}


@rule("WW-113", "WW-115")
@cases(
    "given labels",
    ("a-machine", {"app": "machine", "machine-provider": "local"}, COMMON | {OF_MACHINES}),
    ("another-provider", {"app": "machine", "machine-provider": "other"}, COMMON),
    ("an-exporter", {"app": "blackbox-exporter"}, COMMON),
)
def test_a_pod_may_reach_the_dns_server(given: dict[str, str], labels: set[str]) -> None:
    found = admitted("dnsconfig", pod(**given), found=SERVICE)["metadata"]["labels"]
    assert found == {**given, **dict.fromkeys(labels, "allowed")}


@rule("WW-116", "WW-117")
@pytest.mark.parametrize("namespace", ["shoot--a--b", "garden", "kube-system"])
def test_dns_settings_are_replaced(namespace: str) -> None:
    template = admitted("dnsconfig", deployment("any", namespace), found=SERVICE)["spec"]["template"]
    assert set(template["metadata"]["labels"]) == COMMON
    assert template["spec"] == {
        "dnsPolicy": "None",
        "dnsConfig": {
            "nameservers": ["10.2.0.10", "fd00::10"],
            "searches": [f"{namespace}.svc.cluster.local", "svc.cluster.local", "cluster.local"],
            "options": [{"name": "ndots", "value": "5"}],
        },
    }


@rule("WW-110", "WW-111", "WW-112")
@cases(
    "given old",
    ("a-prober", pod(app="dependency-watchdog-prober"), None),
    ("an-update", pod(app="machine"), pod(app="machine")),
)
def test_some_pods_are_allowed_without_a_lookup(given: dict[str, Any], old: dict[str, Any] | None) -> None:
    assert admitted("dnsconfig", given, old=old, failure="must not be asked") == given


@rule("WW-112", "WW-114")
def test_without_the_dns_server_a_deployment_is_denied() -> None:
    message = refusal("dnsconfig", deployment("dependency-watchdog-prober", "garden"), failure="not found")
    assert message == "not found"
