"""What values lead to: volumes that hold the streams, name servers that are reached, Pods that are placed."""

from __future__ import annotations

import re
import shutil
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from bus import streams
from tests.api.chart.test_chart import GARDENER
from tests.support import helm
from tests.support.cases import cases
from tests.support.helm import Manifest, of_kind, refusal, rendered, rendered_from
from tools.chart.generated import CHART
from windowbox.clients.kubernetes.egress import ALWAYS_DENIED
from windowbox.settings.settings import ObjectsSettings

_OBJECTS = ObjectsSettings().size
RANGES = {"loadbalancer": {"ranges": [{"prefixes": ["198.18.0.0/24"]}]}}
_HA = CHART / "values-ha.yaml"


@pytest.mark.parametrize("files", [(), *((file,) for file in helm.PRESETS)], ids=str)
def test_the_store_of_nats_holds_all_streams(files: tuple[Path, ...]) -> None:
    given = [yaml.safe_load(file.read_text()) for file in files]
    size = next((one["settings"]["objects"]["size"] for one in given if "settings" in one), _OBJECTS)
    store = _store(rendered(*files))
    kept = streams.streams(1, ObjectsSettings(size=size).retention)
    assert sum(one["max_bytes"] for one in kept) <= store


@pytest.mark.parametrize(
    ("values", "least"),
    [
        ({"nats": {"storage": {"size": "2Gi"}}}, "make it 13Gi"),
        ({"nats": {"storage": {"size": "12Gi"}}}, "make it 13Gi"),
        ({"watch": {"settings": {"objects": {"size": 16384}}}}, "make it 29Gi"),
    ],
)
def test_a_volume_that_cannot_hold_the_streams_is_refused(values: dict[str, Any], least: str) -> None:
    assert least in refusal(**values)


def test_the_volume_may_be_as_small_as_the_refusal_says() -> None:
    assert _store(rendered(nats={"storage": {"size": "13Gi"}})) == 13 * 2**30 * 3 // 4


def test_a_changed_configuration_restarts_nats_which_waits_for_its_streams() -> None:
    one, three = (
        of_kind(rendered(nats={"replicas": count}), "StatefulSet")["windowbox-nats"]["spec"]["template"]
        for count in (1, 3)
    )
    checksums = [pod["metadata"]["annotations"]["checksum/configuration"] for pod in (one, three)]
    assert len({*checksums}) == 2
    probes = [pod["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"] for pod in (one, three)]
    assert probes == ["/healthz?js-server-only=true", "/healthz"]


def test_the_preset_for_availability_needs_neither_zones_nor_programs_of_others() -> None:
    manifests = rendered(_HA)
    strict = {
        (constraint["topologyKey"], constraint["whenUnsatisfiable"])
        for one in manifests
        if one["kind"] in ("Deployment", "StatefulSet")
        for constraint in one["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
    }
    assert ("kubernetes.io/hostname", "DoNotSchedule") in strict
    assert ("topology.kubernetes.io/zone", "DoNotSchedule") not in strict
    assert {one["apiVersion"] for one in manifests if "coreos" in one["apiVersion"]} == set()


def test_workers_reach_the_name_servers_of_their_zones() -> None:
    given = ["192.0.2.53", "192.0.2.54:5353", "[2001:db8::1]:54", "2001:db8::2", "ns.example:5300"]
    zones = {"dns": {"zones": [{"name": "example.org", "servers": given}]}}
    manifests = rendered(settings=zones, networkPolicies={"nameServers": ["192.0.2.128/25"]})
    rules = of_kind(manifests, "NetworkPolicy")["windowbox-nameservers"]["spec"]["egress"]
    found = {
        (peer["ipBlock"]["cidr"], port["port"])
        for one in rules
        for peer in one["to"]
        for port in one["ports"]
    }
    assert found == {
        ("192.0.2.53/32", 53), ("192.0.2.54/32", 5353), ("2001:db8::1/128", 54), ("2001:db8::2/128", 53),
        ("192.0.2.128/25", 53), ("192.0.2.128/25", 5353), ("192.0.2.128/25", 5300),
    }  # fmt: skip


def test_envoy_has_a_pod_of_its_own_beside_that_of_the_edge() -> None:
    mine: Manifest = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    manifests = rendered(edge={"enabled": True, "affinity": mine}, settings=RANGES)
    envoy = of_kind(manifests, "StatefulSet")["windowbox-envoy"]["spec"]
    edge = of_kind(manifests, "Deployment")["windowbox-edge"]["spec"]
    assert envoy["updateStrategy"] == {"type": "OnDelete"}
    pods = [one["template"]["spec"] for one in (envoy, edge)]
    assert pods[0]["volumes"][0] == pods[1]["volumes"][-1]
    assert pods[0]["containers"][0]["securityContext"]["capabilities"]["add"] == ["NET_BIND_SERVICE"]
    assert all(pod["hostNetwork"] and not pod["automountServiceAccountToken"] for pod in pods)
    [beside] = pods[1]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert beside["labelSelector"] == envoy["selector"]
    assert all(pod["affinity"]["nodeAffinity"] == mine["nodeAffinity"] for pod in pods)


def test_a_spread_edge_is_on_each_node_beside_its_envoy() -> None:
    chosen = {"role": "edge"}
    manifests = rendered(edge={"enabled": True, "spread": True, "nodeSelector": chosen}, settings=RANGES)
    found = of_kind(manifests, "DaemonSet")
    edge, envoy = (found[f"windowbox-{name}"]["spec"] for name in ("edge", "envoy"))
    assert (edge["updateStrategy"], envoy["updateStrategy"]) == (
        {"type": "RollingUpdate"},
        {"type": "OnDelete"},
    )
    pods = [one["template"]["spec"] for one in (edge, envoy)]
    assert all(pod["nodeSelector"] == chosen and "affinity" not in pod for pod in pods)
    rights = [sorted(pod["containers"][0]["securityContext"]["capabilities"]["add"]) for pod in pods]
    assert rights == [["NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW"]] * 2
    variables = {one["name"]: one for one in pods[0]["containers"][0]["env"]}
    where = variables["WINDOWBOX_LOADBALANCER__HOST"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert where == "spec.nodeName"
    assert "--yielding" in pods[1]["containers"][0]["args"]


@pytest.mark.parametrize(
    "edge", [{"hostPath": ""}, {"hostNetwork": False}], ids=["without-a-folder", "in-a-network-of-its-own"]
)
def test_envoy_is_in_the_pod_of_the_edge(edge: dict[str, Any]) -> None:
    manifests = rendered(edge={"enabled": True, **edge}, settings=RANGES, networkPolicies={"enabled": False})
    assert "windowbox-envoy" not in {one["metadata"]["name"] for one in manifests}
    spec = helm.pod(manifests, "windowbox-edge")
    assert "affinity" not in spec
    settings = of_kind(manifests, "Secret")["windowbox-edge-settings"]["stringData"]["settings.yaml"]
    assert "attachment" not in yaml.safe_load(settings)["loadbalancer"]


@cases(
    "values reason",
    (
        "a-name-server-by-name",
        {"settings": {"dns": {"zones": [{"name": "a.b", "servers": ["ns.example:54"]}]}}},
        "networkPolicies.nameServers: give the ranges of ns.example:54",
    ),
    (
        "an-edge-whose-clients-are-refused",
        {"edge": {"enabled": True, "hostNetwork": False}, "settings": RANGES},
        "needs networkPolicies.enabled: false",
    ),
    (
        "two-envoys-with-the-same-addresses",
        {"edge": {"enabled": True, "replicas": 2}, "settings": RANGES},
        "edge.replicas: one",
    ),
    (
        "one-pod-with-three-servers",
        {"run": {"enabled": True}, "nats": {"replicas": 3}},
        "run.enabled: one Pod for small installations",
    ),
    (
        "a-spread-edge-with-envoy-in-its-pod",
        {"edge": {"enabled": True, "spread": True, "hostPath": ""}, "settings": RANGES},
        "edge.spread needs",
    ),
    ("a-name-that-would-be-cut", {"fullnameOverride": "a" * 41}, "maxLength"),
    (
        "ranges-that-have-no-effect",
        {"networkPolicies": {"providerClusters": ["198.51.100.0/24"]}},
        "needs networkPolicies.apiServers",
    ),
    (
        "a-port-that-no-service-has",
        {"admit": {"enabled": True}, "settings": {"webhooks": {"address": "0.0.0.0:9443"}}},
        'of the chart depend on "0.0.0.0:10250"',
    ),
    ("a-feature", {"settings": {"feature_gates": {"Foo": True}}}, "'IngressRecords'"),
    ("a-class", {"settings": {"work": {"classes": ["shoots"]}}}, "'garden', 'seed'"),
    ("two-primaries", {"bind": {"replicas": 2}}, "'replicas' not allowed"),
)
def test_values_that_would_not_work_are_refused(values: dict[str, Any], reason: str) -> None:
    assert reason in refusal(**values)


def test_api_servers_of_other_clusters_are_reached_beside_that_of_this_one() -> None:
    policies = {"apiServers": ["192.0.2.1/32"], "providerClusters": ["198.51.100.0/24"]}
    manifests = rendered(networkPolicies=policies)
    [blocks] = [
        [peer["ipBlock"]["cidr"] for peer in rule["to"]]
        for rule in of_kind(manifests, "NetworkPolicy")["windowbox"]["spec"]["egress"]
        if "ipBlock" in rule.get("to", [{}])[0]
    ]
    assert blocks == ["192.0.2.1/32", "198.51.100.0/24"]


def test_without_known_api_servers_pods_reach_all_but_what_is_always_denied() -> None:
    blocks = [
        peer["ipBlock"]
        for rule in of_kind(rendered(), "NetworkPolicy")["windowbox"]["spec"]["egress"]
        for peer in rule.get("to", [])
        if "ipBlock" in peer
    ]
    assert [one["cidr"] for one in blocks] == ["0.0.0.0/0", "::/0"]
    excepted = {ip_network(one) for block in blocks for one in block["except"]}
    assert excepted == set(ALWAYS_DENIED)


def test_a_nats_of_ones_own_is_reached_on_the_ports_of_its_url() -> None:
    nats = {"enabled": False, "url": "tls://a:4223,tls://b,tls://[2001:db8::1]:4224/", "existingSecret": "x"}
    rules = of_kind(rendered(nats=nats), "NetworkPolicy")["windowbox"]["spec"]["egress"]
    [ports] = [[port["port"] for port in one["ports"]] for one in rules if "to" not in one]
    assert ports == [4223, 4222, 4224]


def test_three_nats_servers_are_on_three_nodes_where_spreading_is_strict() -> None:
    pod = helm.pod(rendered(_HA), "windowbox-nats", "StatefulSet")
    found = {one["topologyKey"]: one.get("minDomains") for one in pod["topologySpreadConstraints"]}
    assert found == {"topology.kubernetes.io/zone": None, "kubernetes.io/hostname": 3}


def test_alerts_link_where_their_page_is_read() -> None:
    rules = _alerts(prometheusRule={"enabled": True, "runbooks": "https://wiki.example/alerts"})
    assert rules["WindowboxRoleDown"]["runbook_url"] == "https://wiki.example/alerts#windowboxroledown"
    unlinked = _alerts(prometheusRule={"enabled": True})
    assert {tuple(annotations) for annotations in unlinked.values()} == {("summary",)}


def test_the_notes_describe_the_installed_parts() -> None:
    said = helm.notes(networkPolicies={"apiServerPorts": [8443]}, rbac={"provider": True})
    assert "on ports 8443" in said
    assert "settings.egress.denied" in said
    assert "rbac.provider lets workers" in said
    off = {"networkPolicies": {"enabled": False}, "test": {"enabled": False}, "bind": {"enabled": True}}
    said = helm.notes(**off, settings={"egress": {"denied": ["10.0.0.0/8"]}})
    assert "settings.egress.denied" not in said
    for absent in ("on ports", "helm test", "rbac.provider"):
        assert absent not in said


def test_roles_that_are_enabled_have_their_alerts() -> None:
    found = [_alerts(admit=admit, prometheusRule={"enabled": True}).keys() for admit in (False, True)]
    assert found[1] - found[0] == {"WindowboxAdmitDown"}
    assert "WindowboxEdgeDown" not in found[0]


def _alerts(*, admit: bool = False, **monitoring: Any) -> dict[str, dict[str, str]]:
    """The annotations of each alert."""
    manifests = rendered(monitoring=monitoring, admit={"enabled": admit})
    [made] = of_kind(manifests, "PrometheusRule").values()
    return {one["alert"]: one["annotations"] for group in made["spec"]["groups"] for one in group["rules"]}


def _store(manifests: list[Manifest]) -> int:
    text = of_kind(manifests, "ConfigMap")["windowbox-nats"]["data"]["nats-server.conf"]
    found = re.search(r"max_file_store: (\d+)", text)
    assert found, text
    return int(found[1])


@pytest.mark.parametrize(("folder", "replicas"), [("/var/lib/windowbox/edge", "1"), ("", None)])
def test_gardener_makes_one_edge_where_envoy_has_a_pod(folder: str, replicas: str | None) -> None:
    prefix = "high-availability-config.resources.gardener.cloud"
    manifests = rendered(edge={"enabled": True, "hostPath": folder}, settings=RANGES, **GARDENER)
    edge = of_kind(manifests, "Deployment")["windowbox-edge"]["metadata"]
    # Gardener gives what has this label two replicas, unless the annotation says another number.
    assert edge["labels"][f"{prefix}/type"] == "controller"
    assert edge.get("annotations", {}).get(f"{prefix}/replicas") == replicas
    for envoy in of_kind(manifests, "StatefulSet").values():
        assert f"{prefix}/type" not in envoy["metadata"]["labels"]


def test_gardener_makes_as_many_pods_of_a_small_installation_as_the_values_say() -> None:
    prefix = "high-availability-config.resources.gardener.cloud"
    admit = {"enabled": True, "replicas": 3}
    manifests = rendered(run={"enabled": True}, admit=admit, **GARDENER)
    found = {
        name: one["metadata"].get("annotations", {}).get(f"{prefix}/replicas")
        for name, one in of_kind(manifests, "Deployment").items()
    }
    assert found == {"windowbox-run": "1", "windowbox-admit": "3", "windowbox-grant": "1"}


def test_one_pod_serves_only_the_pools_that_are_named() -> None:
    manifests = rendered(run={"enabled": True, "pools": ["dnsrecord", "backupbucket"]})
    [container] = of_kind(manifests, "Deployment")["windowbox-run"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:3] == ["run", "--pool=dnsrecord", "--pool=backupbucket"]


def test_another_version_of_the_chart_alone_leaves_the_pod_of_envoy_as_it_is(tmp_path: Path) -> None:
    values = {"edge": {"enabled": True}, "settings": RANGES, "image": {"tag": "0.2.0"}}
    newer = Path(shutil.copytree(CHART, tmp_path / "chart"))
    about = newer / "Chart.yaml"
    changed = yaml.safe_load(about.read_text()) | {"version": "9.9.9", "appVersion": "9.9.9"}
    about.write_text(yaml.safe_dump(changed))
    one, other = (
        of_kind(made, "StatefulSet")["windowbox-envoy"]
        for made in (rendered(**values), rendered_from(newer, **values))
    )
    assert one["metadata"]["labels"] != other["metadata"]["labels"]
    assert one["spec"] == other["spec"]


def test_gardener_does_not_wait_for_a_revision_that_only_a_person_rolls_out() -> None:
    envoy, elsewhere = (
        of_kind(rendered(edge={"enabled": True}, settings=RANGES, **more), "StatefulSet")["windowbox-envoy"]
        for more in (GARDENER, {})
    )
    assert envoy["metadata"]["annotations"] == {"resources.gardener.cloud/skip-health-check": "true"}
    assert "annotations" not in elsewhere["metadata"]


def test_envoys_pod_gets_volumes_and_variables_of_the_edge() -> None:
    volume: Manifest = {"name": "programs", "hostPath": {"path": "/opt/programs"}}
    mount: Manifest = {"name": "programs", "mountPath": "/opt"}
    variable: Manifest = {"name": "LD_LIBRARY_PATH", "value": "/opt/lib"}
    settings = {"loadbalancer": {**RANGES["loadbalancer"], "envoy": "/opt/envoy"}}
    edge = {"enabled": True, "extraVolumes": [volume], "extraVolumeMounts": [mount], "extraEnv": [variable]}
    of_role = {"enabled": True, "settings": {"loadbalancer": {"envoy": "/opt/envoy"}}}
    pod, other = (
        helm.pod(rendered(edge=values, settings=given), "windowbox-envoy", "StatefulSet")
        for values, given in ((edge, settings), (of_role, RANGES))
    )
    [container] = pod["containers"]
    assert volume in pod["volumes"]
    assert mount in container["volumeMounts"]
    assert container["env"] == [variable]
    assert container["args"][-1] == other["containers"][0]["args"][-1] == "--envoy=/opt/envoy"


def test_a_custom_attachment_is_refused_with_its_remedy() -> None:
    settings = {"loadbalancer": {**RANGES["loadbalancer"], "attachment": "process"}}
    assert 'set edge.hostPath: ""' in refusal(edge={"enabled": True}, settings=settings)
    kept = rendered(edge={"enabled": True, "hostPath": ""}, settings=settings)
    assert "windowbox-envoy" not in of_kind(kept, "StatefulSet")
