"""Mutations of objects of Shoots and seeds, except control planes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import yaml

from tests.support.admitted import DELETED, Json, admitted, answered, refusal, resource
from tests.support.cases import cases
from tests.support.rules import rule
from webhooks import shapes
from windowbox.settings.webhooksettings import PrometheusSettings, WebhookSettings

MUCH = {"cpu": "100", "memory": "100Gi"}


def node(metadata: Any = None, **parts: Any) -> Json:
    return resource("v1 Node", "one", namespace="", metadata=metadata, **parts)


@rule("WW-81", "WW-82")
def test_a_node_has_more_capacity_than_its_machine() -> None:
    given = {"cpu": "8", "memory": "16Gi", "pods": "110", "hugepages-2Mi": "0"}
    found = admitted("node", node(spec={}, status={"capacity": given, "allocatable": given, "phase": "x"}))
    assert found["spec"] == {"providerID": "one"}
    assert found["status"] == {"capacity": given | MUCH, "allocatable": given | MUCH, "phase": "x"}


@rule("WW-82")
@pytest.mark.parametrize(
    ("given", "found"), [({"providerID": "mine"}, "mine"), ({"providerID": ""}, "one"), (None, "one")]
)
def test_a_provider_id_is_kept(given: Any, found: str) -> None:
    assert admitted("node", node(spec=given))["spec"]["providerID"] == found


def sized(annotation: str | None, **status: Any) -> Any:
    annotations = {} if annotation is None else {"machine.windowbox/capacity": annotation}
    given = {"capacity": status, "allocatable": {**status, "cpu": "1500m"}}
    return admitted("instance", node({"annotations": annotations}, status=given))["status"]


@rule("ALL-Z8")
def test_a_node_of_a_cloud_has_what_its_machine_type_has() -> None:
    found = sized('{"cpu":"2","memory":"8Gi","pods":"1"}', cpu="16", memory="64Gi", pods="110")
    assert found["capacity"] == {"cpu": "2", "memory": "8Gi", "pods": "110"}
    assert found["allocatable"] == {"cpu": "1500m", "memory": "8Gi", "pods": "110"}
    assert sized('{"cpu":"32"}', cpu="16")["capacity"] == {"cpu": "16"}


@pytest.mark.parametrize(
    "annotation", [None, "", "{", "[]", '{"cpu":[]}', '{"cpu":"-1"}', '{"cpu":"x"}', "[" * 9000]
)
def test_a_node_of_a_cloud_without_a_size_stays_as_it_is(annotation: str | None) -> None:
    assert sized(annotation, cpu="16") == {"capacity": {"cpu": "16"}, "allocatable": {"cpu": "1500m"}}


@rule("WW-85")
@pytest.mark.parametrize("status", [None, {}, {"capacity": None}, {"allocatable": {}}])
def test_a_node_without_capacity_gets_the_usual_one(status: Any) -> None:
    assert admitted("node", node(status=status))["status"] == {"capacity": MUCH, "allocatable": MUCH}


@rule("WW-3", "WW-84", "WW-86")
def test_a_node_is_changed_under_deletion_and_after_each_report() -> None:
    once = admitted("node", node(DELETED))
    assert admitted("node", once) == once
    reported = once | {"status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}}}
    assert admitted("node", reported) == once


@rule("WW-81")
@pytest.mark.parametrize(
    ("cpu", "memory"), [("100", "100Gi"), (100, "102400Mi"), ("100000m", "107374182400"), ("1e2", "100.0Gi")]
)
def test_a_node_of_the_same_capacity_stays_as_it_is(cpu: Any, memory: Any) -> None:
    capacity = {"cpu": cpu, "memory": memory, "pods": "110"}
    found = node(spec={"providerID": "one"}, status={"capacity": capacity, "allocatable": capacity})
    assert not answered("node", found).patch


INVALID: tuple[Any, ...] = (None, True, "", "m", "1 m", "1mi", "1e", "1e9999", "0x1", "١", "1" * 101, {})


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        *(("1", "1"), ("1000m", "1"), (1, "1"), (0.5, "0.5"), (".5", "0.5"), ("+5.", "5"), ("1e3", "1000")),
        *(("1E3", "1000"), ("1E", "1000000000000000000"), ("1k", "1000"), ("1Ki", "1024")),
        *(("0.5Gi", "536870912"), ("100n", "0.0000001")),
        *((invalid, None) for invalid in INVALID),
    ],
)
def test_quantities_are_read_as_numbers(quantity: object, number: str | None) -> None:
    assert shapes.value(quantity) == (None if number is None else Decimal(number))


def config_map(data: Any, name: str = "kube-proxy-config-1a2b3c4d", **more: Any) -> Json:
    return resource("v1 ConfigMap", name, "kube-system", data=data, **more)


@rule("WW-90", "WW-91")
@cases(
    "given",
    ("another-name", config_map({"config.yaml": "mode: nftables"}, "kube-proxy")),
    ("another-key", config_map({"cleanup.sh": "x"})),
    ("no-data", config_map(None)),
)
def test_other_config_maps_stay_as_they_are(given: Json) -> None:
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


def daemon_set(*containers: Any, **pod: Any) -> Json:
    pod["containers"] = list(containers)
    return resource("apps/v1 DaemonSet", namespace="kube-system", spec={"template": {"spec": pod}})


def calico(*env: Any) -> Json:
    return {"name": "calico-node", "env": list(env)}


@rule("WW-101", "WW-102")
@pytest.mark.parametrize("field", ["credentialsBindingName", "secretBindingName"])
def test_managed_infrastructure_keeps_the_range_of_pods(field: str) -> None:
    message = refusal("calico-self-hosted-shoot", daemon_set(calico()), failure="it is away")
    assert message == "failed reading Cluster resource: it is away"
    given, found = daemon_set(calico()), {"spec": {"shoot": {"spec": {field: "local"}}}}
    assert admitted("calico-self-hosted-shoot", given, found=found) == given


@rule("WW-100", "WW-103")
@cases("found", ("unmanaged", {"spec": {"shoot": {"spec": {}}}}), ("no-shoot", {"spec": {}}))
def test_calico_assigns_pods_the_smaller_range(found: Json) -> None:
    stale = {"name": POOL["name"], "valueFrom": {"fieldRef": {"fieldPath": "x"}}}
    before, after, other = {"name": "A", "value": "b"}, {"name": "C"}, {"name": "other", "env": [{**stale}]}
    given = daemon_set(calico(before, stale, after), other, initContainers=[{"name": "calico-node"}])
    made = admitted("calico-self-hosted-shoot", given, found=found)["spec"]["template"]["spec"]
    assert made == {"containers": [calico(before, POOL, after), other], "initContainers": [calico(POOL)]}


NODES = "172.18.0.0/24"


def seed(nodes: str | None = NODES) -> Json:
    return {"spec": {"seed": {"spec": {"networks": {"nodes": nodes}}}}}


def policy(*excepted: str, name: str = "allow-to-private-networks", metadata: Any = None) -> Json:
    block = {"cidr": "172.16.0.0/12", "except": list(excepted)}
    spec = {"egress": [{"to": [{"ipBlock": block}, {"podSelector": {}}]}, {"ports": []}]}
    return resource("networking.k8s.io/v1 NetworkPolicy", name, metadata=metadata, spec=spec)


def exceptions(found: Any) -> Any:
    return found["spec"]["egress"][0]["to"][0]["ipBlock"].get("except", "none")


@cases(
    "given left",
    ("I-5+WW-53+WW-54-the-only-one", [NODES], "none"),
    ("WW-53-one-of-two", [NODES, "10.0.0.0/8"], ["10.0.0.0/8"]),
    ("WW-55-twice", ["10.0.0.0/8", NODES, NODES], ["10.0.0.0/8"]),
    ("WW-55-nothing-else", [NODES, NODES], "none"),
    ("WW-53-a-part-of-it", ["172.18.0.0/25"], ["172.18.0.0/25"]),
)
def test_the_nodes_of_the_seed_are_no_exception(given: list[str], left: Any) -> None:
    assert exceptions(admitted("networkpolicy", policy(*given), found=seed())) == left


@rule("WW-52")
@pytest.mark.parametrize(
    "found",
    [{"spec": {}}, {"spec": {"seed": None}}, {"spec": {"seed": {"spec": {"networks": {}}}}}, seed(None)],
)
def test_a_seed_without_a_range_of_nodes_changes_nothing(found: Json) -> None:
    assert admitted("networkpolicy", policy(NODES), found=found) == policy(NODES)


@rule("WW-3", "WW-50", "WW-51")
def test_only_policies_of_the_name_need_the_cluster() -> None:
    other = policy(NODES, name="allow-to-dns")
    assert admitted("networkpolicy", other, failure="must not be asked") == other
    assert refusal("networkpolicy", policy(NODES), failure="clusters is forbidden") == "clusters is forbidden"
    deleting = policy(NODES, metadata=DELETED)
    assert exceptions(admitted("networkpolicy", deleting, found=seed())) == "none"


def prometheus(name: str, **spec: Any) -> Json:
    return resource("monitoring.coreos.com/v1 Prometheus", name, "garden", spec=spec)


ALLOWED = {"networking.gardener.cloud/to-private-networks": "allowed"}
REMOTE = WebhookSettings(
    prometheus=PrometheusSettings(
        remote_write_urls=("http://a/write", "http://b/write"), external_labels={"job": "x", "new": "y"}
    )
)


@cases(
    "name ends",
    ("WW-60", "shoot", {}),
    ("WW-61-garden", "garden", {"terminationGracePeriodSeconds": 60}),
    ("WW-61-longterm", "longterm", {"terminationGracePeriodSeconds": 60}),
)
def test_other_prometheuses_keep_their_remote_write(name: str, ends: Json) -> None:
    found = admitted("prometheus", prometheus(name, remoteWrite=[1]), settings=REMOTE)
    assert found == prometheus(name, remoteWrite=[1], **ends)


@rule("WW-62", "WW-63", "WW-64")
def test_the_seeds_prometheus_writes_to_all_urls_in_order() -> None:
    given = prometheus("seed", externalLabels={"job": "old", "seed": "local"})
    found = admitted("prometheus", given, settings=REMOTE)["spec"]
    assert found["externalLabels"] == {"job": "x", "seed": "local", "new": "y"}
    assert found["podMetadata"] == {"labels": ALLOWED}
    assert [one["url"] for one in found["remoteWrite"]] == ["http://a/write", "http://b/write"]
    assert found["remoteWrite"][1]["writeRelabelConfigs"] == [
        {"sourceLabels": ["job"], "regex": "gardenlet", "action": "keep"},
        {"sourceLabels": ["__name__"], "regex": "(up|flow_.+|gardenlet_.+)", "action": "keep"},
    ]


@rule("WW-63", "WW-64", "WW-65")
def test_without_urls_the_seeds_prometheus_writes_nowhere() -> None:
    given = prometheus("seed", remoteWrite=[{"url": "stale"}], podMetadata={"labels": {"a": "b"}})
    labels = {"a": "b", **ALLOWED}
    spec = {"podMetadata": {"labels": labels}, "terminationGracePeriodSeconds": 60}
    assert admitted("prometheus", given)["spec"] == spec


def api_server(seconds: Any = None, **pod: Any) -> Json:
    spec = {"template": {"spec": pod}} | ({} if seconds is None else {"minReadySeconds": seconds})
    return resource("apps/v1 Deployment", spec=spec)


@rule("WW-70", "WW-71")
@pytest.mark.parametrize(("given", "found"), [(30, 5), (6, 5), (5, 5), (3, 3), (0, 0), (None, None)])
def test_new_pods_are_ready_within_five_seconds(given: int | None, found: int | None) -> None:
    assert admitted("rollout-speedup", api_server(given))["spec"].get("minReadySeconds") == found


@rule("WW-72", "WW-73")
def test_probes_and_grace_are_short() -> None:
    probe = {"httpGet": {"path": "/"}, "periodSeconds": 1, "initialDelaySeconds": 0}
    containers = [{"name": "a", "readinessProbe": probe}, {"name": "b", "livenessProbe": probe}]
    first = [{"name": "c", "readinessProbe": probe}]
    given = api_server(terminationGracePeriodSeconds=0, containers=containers, initContainers=first)
    short = {"httpGet": {"path": "/"}, "periodSeconds": 5, "initialDelaySeconds": 3}
    assert admitted("rollout-speedup", given)["spec"]["template"]["spec"] == {
        "terminationGracePeriodSeconds": 3,
        "containers": [{"name": "a", "readinessProbe": short}, containers[1]],
        "initContainers": first,
    }


def test_a_deployment_of_a_wrong_type_cannot_be_decoded() -> None:
    assert answered("rollout-speedup", api_server("30")).code == 400
    assert answered("rollout-speedup", api_server(containers={})).code == 400


SERVICE = {"spec": {"clusterIPs": ["10.2.0.10", "fd00::10"]}}
NETWORKING = "networking.resources.gardener.cloud/to"
COMMON = {
    "networking.gardener.cloud/to-istio-ingressgateway",
    f"{NETWORKING}-gardener-extension-provider-local-coredns-coredns-tcp-9053",
    f"{NETWORKING}-gardener-extension-provider-local-coredns-coredns-udp-9053",
}
OF_MACHINES = f"{NETWORKING}-all-istio-ingresses-istio-ingressgateway-tcp-9443"


def pod(**labels: str) -> Json:
    return resource("v1 Pod", metadata={"labels": labels}, spec={"dnsConfig": {"searches": ["x"]}})


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
    given = resource("apps/v1 Deployment", namespace=namespace, spec={"template": {}})
    template = admitted("dnsconfig", given, found=SERVICE)["spec"]["template"]
    assert set(template["metadata"]["labels"]) == COMMON
    searches = [f"{namespace}.svc.cluster.local", "svc.cluster.local", "cluster.local"]
    options = [{"name": "ndots", "value": "5"}]
    config = {"nameservers": ["10.2.0.10", "fd00::10"], "searches": searches, "options": options}
    assert template["spec"] == {"dnsPolicy": "None", "dnsConfig": config}


@rule("WW-110", "WW-111", "WW-112")
@cases(
    "given old",
    ("a-prober", pod(app="dependency-watchdog-prober"), None),
    ("an-update", pod(app="machine"), pod(app="machine")),
)
def test_some_pods_are_allowed_without_a_lookup(given: Json, old: Json | None) -> None:
    assert admitted("dnsconfig", given, old=old, failure="must not be asked") == given


@rule("WW-112", "WW-114")
def test_without_the_dns_server_a_deployment_is_denied() -> None:
    prober = resource("apps/v1 Deployment", "dependency-watchdog-prober", "garden", spec={"template": {}})
    assert refusal("dnsconfig", prober, failure="not found") == "not found"
