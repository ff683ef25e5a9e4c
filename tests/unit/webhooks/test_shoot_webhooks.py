"""What happens to Nodes, kube-proxies and Calico in Shoots."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.support.admitted import admitted, refusal
from tests.support.cases import cases
from tests.support.rules import rule

MUCH = {"cpu": "100", "memory": "100Gi"}


def node(spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one", **metadata}}
    return made | ({} if spec is None else {"spec": spec}) | ({} if status is None else {"status": status})


@rule("WW-81", "WW-82")
def test_a_node_has_more_capacity_than_its_machine() -> None:
    given = {"cpu": "8", "memory": "16Gi", "pods": "110", "hugepages-2Mi": "0"}
    found = admitted("node", node({}, {"capacity": given, "allocatable": given, "phase": "x"}))
    assert found["spec"] == {"providerID": "one"}
    assert found["status"] == {"capacity": given | MUCH, "allocatable": given | MUCH, "phase": "x"}


@rule("WW-82")
@pytest.mark.parametrize(
    ("given", "found"), [({"providerID": "mine"}, "mine"), ({"providerID": ""}, "one"), (None, "one")]
)
def test_a_provider_id_is_kept(given: Any, found: str) -> None:
    assert admitted("node", node(given))["spec"]["providerID"] == found


@rule("WW-85")
@pytest.mark.parametrize("status", [None, {}, {"capacity": None}, {"allocatable": {}}])
def test_a_node_without_capacity_gets_some(status: Any) -> None:
    assert admitted("node", node(status=status))["status"] == {"capacity": MUCH, "allocatable": MUCH}


@rule("WW-3", "WW-84", "WW-86")
def test_nodes_under_deletion_are_changed_too_and_again_when_a_kubelet_reports() -> None:
    given = node(deletionTimestamp="2026-01-01T00:00:00Z")
    once = admitted("node", given)
    assert admitted("node", once) == once
    reported = once | {"status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}}}
    assert admitted("node", reported) == once


def config_map(data: Any, name: str = "kube-proxy-config-1a2b3c4d", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, **more}


@rule("WW-90", "WW-91")
@cases(
    "given",
    ("another-name", config_map({"config.yaml": "mode: nftables"}, "kube-proxy")),
    ("another-key", config_map({"cleanup.sh": "x"})),
    ("no-data", config_map(None)),
)
def test_other_config_maps_stay_as_they_are(given: dict[str, Any]) -> None:
    assert admitted("shoot", given) == given


@rule("WW-92", "WW-93")
def test_kube_proxy_leaves_connection_tracking_alone() -> None:
    text = "mode: nftables\nclusterCIDR: 10.3.0.0/16\nconntrack: {maxPerCore: 7}\n"
    found = admitted("shoot", config_map({"config.yaml": text, "other": "x"}, immutable=True))
    assert yaml.safe_load(found["data"]["config.yaml"]) == {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": "10.3.0.0/16",
        "conntrack": {"maxPerCore": 0},
    }
    assert found["data"]["other"] == "x"
    assert found["metadata"]["name"] == "kube-proxy-config-1a2b3c4d"
    assert admitted("shoot", found) == found


@rule("WW-91", "WW-94")
@pytest.mark.parametrize(
    "text", ["a: [", "kind: Pod", "conntrack: 5", "conntrack: {maxPerCore: many}", "- a"]
)
def test_a_configuration_that_cannot_be_read_is_denied(text: str) -> None:
    message = refusal("shoot", config_map({"config.yaml": text}))
    assert message.startswith("config.yaml is not a KubeProxyConfiguration: ")


POOL = {"name": "CALICO_IPV4POOL_CIDR", "value": "10.1.0.0/16"}


def daemon_set(**pod: Any) -> dict[str, Any]:
    metadata = {"name": "any", "namespace": "kube-system"}
    spec = {"template": {"spec": pod}}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def calico(*env: Any) -> dict[str, Any]:
    return {"name": "calico-node", "env": list(env)}


UNMANAGED: dict[str, Any] = {"spec": {"shoot": {"spec": {}}}}


@rule("WW-101")
def test_a_cluster_that_cannot_be_read_denies_calico() -> None:
    message = refusal("calico-self-hosted-shoot", daemon_set(containers=[calico()]), failure="it is away")
    assert message == "failed reading Cluster resource: it is away"


@rule("WW-102")
@pytest.mark.parametrize("field", ["credentialsBindingName", "secretBindingName"])
def test_managed_infrastructure_keeps_the_range_of_pods(field: str) -> None:
    given = daemon_set(containers=[calico()])
    found = {"spec": {"shoot": {"spec": {field: "local"}}}}
    assert admitted("calico-self-hosted-shoot", given, found=found) == given


@rule("WW-100", "WW-103")
@pytest.mark.parametrize("found", [UNMANAGED, {"spec": {}}], ids=["unmanaged", "no-shoot"])
def test_calico_assigns_pods_the_smaller_range(found: dict[str, Any]) -> None:
    stale = {"name": POOL["name"], "valueFrom": {"fieldRef": {"fieldPath": "x"}}}
    given = daemon_set(
        containers=[
            calico({"name": "A", "value": "b"}, stale, {"name": "C"}),
            {"name": "other", "env": [{**stale}]},
        ],
        initContainers=[{"name": "calico-node"}],
    )
    made = admitted("calico-self-hosted-shoot", given, found=found)["spec"]["template"]["spec"]
    assert made["containers"] == [
        calico({"name": "A", "value": "b"}, POOL, {"name": "C"}),
        {"name": "other", "env": [{**stale}]},
    ]
    assert made["initContainers"] == [{"name": "calico-node", "env": [POOL]}]
