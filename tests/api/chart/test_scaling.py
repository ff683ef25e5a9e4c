"""ScaledObjects and VerticalPodAutoscalers of the charts, checked by KEDA's and Gardener's definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.servers import manifests
from sandbox.servers.apiserver import ApiServer
from tests.api.chart.test_chart import GARDENER
from tests.support import helm, installing
from tests.support.cases import cases
from tests.support.helm import Manifest, dry_run, of_kind, refusal, rendered
from tests.support.keda import sources
from tests.support.servers import ControlPlane
from tools.chart.admission import RUNTIME
from tools.chart.generated import CHART

GROUP = {"name": "a", "pools": ["dnsrecord", "worker"], "autoscaling": {"type": "keda", "lag": 5}}
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCALER = re.compile(r'^\t\w+ +\w+ +`keda:"name=(\w+),([^"`]*)"`$', re.MULTILINE)


@pytest.fixture(scope="module")
def keda() -> Path:
    """KEDA's sources."""
    return sources()


@pytest.fixture(scope="module")
def scaled_objects(plane: ControlPlane, keda: Path) -> Iterator[ApiServer]:
    """An API server that knows ScaledObjects."""
    file = keda / "config" / "crd" / "bases" / "keda.sh_scaledobjects.yaml"
    definition = yaml.safe_load(file.read_text())
    manifests.define(plane.api, definition)
    yield plane.api
    plane.api.request("DELETE", f"{_DEFINITIONS}/{definition['metadata']['name']}").close()


@pytest.mark.long
def test_kedas_definition_accepts_the_rendered_scaledobject(scaled_objects: ApiServer) -> None:
    [scaled] = of_kind(rendered(work=[GROUP]), "ScaledObject").values()
    assert dry_run(scaled_objects, scaled) == ""
    scaled["spec"]["minReplicas"] = 1
    assert ".spec.minReplicas: field not declared in schema" in dry_run(scaled_objects, scaled)


@pytest.mark.long
def test_the_scaler_reads_each_parameter_and_lacks_none(keda: Path) -> None:
    source = (keda / "pkg" / "scalers" / "nats_jetstream_scaler.go").read_text()
    known = {name: "optional" in rest or "default=" in rest for name, rest in SCALER.findall(source)}
    [scaled] = of_kind(rendered(work=[GROUP]), "ScaledObject").values()
    for trigger in scaled["spec"]["triggers"]:
        given = trigger["metadata"].keys()
        assert given <= known.keys()
        assert {name for name, may_lack in known.items() if not may_lack} <= given


@cases(
    "scaling kind reason",
    ("an-hpa-beside-keda", "keda", "HorizontalPodAutoscaler", "by keda already"),
    ("a-scaledobject-beside-an-hpa", "hpa", "ScaledObject", "by hpa already"),
)
def test_two_that_would_scale_the_same_pods_are_refused(scaling: str, kind: str, reason: str) -> None:
    group = {"name": "a", "pools": ["dnsrecord"], "autoscaling": {"type": scaling}}
    refused = refusal(work=[group], extraObjects=[_scaler(kind, "windowbox-work-a")])
    assert f"extraObjects: {kind} mine scales windowbox-work-a, which is scaled {reason}" in refused
    others = rendered(work=[group], extraObjects=[_scaler(kind, "something-else")])
    assert "mine" in of_kind(others, kind)


def test_keda_counts_the_items_of_each_pool() -> None:
    manifests = rendered(work=[GROUP])
    [scaled] = of_kind(manifests, "ScaledObject").values()
    found = [one["metadata"] for one in scaled["spec"]["triggers"]]
    assert [one["consumer"] for one in found] == ["pool-dnsrecord", "pool-worker"]
    assert {one["stream"] for one in found} == {"WORK"}
    assert "replicas" not in of_kind(manifests, "Deployment")["windowbox-work-a"]["spec"]
    assert of_kind(manifests, "HorizontalPodAutoscaler") == {}


KIND = "VerticalPodAutoscaler"
VPA = {"enabled": True}
ROLES: dict[str, Any] = {
    "edge": {"enabled": True}, "admit": {"enabled": True}, "bind": {"enabled": True},
    "operator": {"enabled": True},
    "settings": {"loadbalancer": {"ranges": [{"prefixes": ["198.18.255.0/24"]}]}},
    "work": [
        {"name": "a", "pools": ["dnsrecord"], "autoscaling": {"type": "hpa"}},
        {"name": "b", "pools": ["dnsrecord"], "autoscaling": {"type": "keda"}},
        {"name": "c"},
    ],
}  # fmt: skip
WITH = [
    f"windowbox-{one}" for one in ("watch", "work-a", "work-b", "work-c", "patch", "edge", "admit", "grant")
]
BY_CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}
BY_MEMORY = {"type": "ContainerResource", "containerResource": {"container": "windowbox", "name": "memory"}}


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[ApiServer]:
    """An API server that knows VerticalPodAutoscalers."""
    name = "verticalpodautoscalers.autoscaling.k8s.io"
    definitions = installing.gardeners_sources() / "example" / "seed-crds"
    file = definitions / "10-crd-autoscaling.k8s.io_verticalpodautoscalers.yaml"
    manifests.define(plane.api, yaml.safe_load(file.read_text()))
    for namespace in (helm.NAMESPACE, "garden"):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        plane.api.apply(f"/api/v1/namespaces/{namespace}", body)
    yield plane.api
    plane.api.request("DELETE", f"{_DEFINITIONS}/{name}").close()


def _made(**values: Any) -> dict[str, Manifest]:
    return of_kind(rendered(**ROLES | {"vpa": VPA} | values), KIND)


def _admission(**values: Any) -> dict[str, Manifest]:
    return of_kind(helm.of_chart(RUNTIME, "provider-local", "garden", **values), KIND)


@pytest.mark.long
def test_gardeners_definition_accepts_the_rendered_autoscalers(api: ApiServer) -> None:
    bounds = {"minAllowed": {"cpu": "10m"}, "maxAllowed": {"cpu": "1", "memory": "1Gi"}}
    given = VPA | {"resourcePolicy": bounds}
    found = [*_made().values(), *_made(vpa=given).values()]
    found += _admission(vpa=given).values()
    assert [error for one in found if (error := dry_run(api, one))] == []
    found[0]["spec"]["updatePolicy"]["updateMode"] = "Sometimes"
    assert "Unsupported value" in dry_run(api, found[0])


def test_each_role_has_an_autoscaler_and_servers_have_none() -> None:
    made = _made()
    assert sorted(made) == sorted(f"{name}-vpa" for name in WITH)
    manifests = rendered(**ROLES)
    for one in made.values():
        containers = helm.pod(manifests, one["spec"]["targetRef"]["name"])["containers"]
        assert [container["name"] for container in containers] == ["windowbox"]
    memory = {"minAllowed": {"memory": "96Mi"}}
    ours = {"containerName": "windowbox", "controlledValues": "RequestsOnly", **memory}
    assert made["windowbox-watch-vpa"]["spec"] == {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "windowbox-watch"},
        "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
        "resourcePolicy": {"containerPolicies": [ours, {"containerName": "*", "mode": "Off"}]},
    }


def test_without_it_there_are_none() -> None:
    assert of_kind(rendered(**ROLES), KIND) == {}
    assert _admission() == {}


def test_an_edge_whose_pod_holds_envoy_has_none() -> None:
    made = _made(edge={"enabled": True, "hostPath": ""})
    assert sorted(made) == sorted(f"{name}-vpa" for name in WITH if name != "windowbox-edge")


def test_only_memory_changes_where_pods_are_counted_by_cpu() -> None:
    own = _scaler("HorizontalPodAutoscaler", "windowbox-watch", metrics=[BY_CPU])
    cpu = {"type": "cpu", "metadata": {"value": "60"}}
    by_trigger = _scaler("ScaledObject", "windowbox-patch", triggers=[cpu])
    made = _made(extraObjects=[own, by_trigger])
    controlled = {
        name: policies[0]["controlledResources"]
        for name, one in made.items()
        if "controlledResources" in (policies := one["spec"]["resourcePolicy"]["containerPolicies"])[0]
    }
    counted = ("windowbox-watch-vpa", "windowbox-work-a-vpa", "windowbox-patch-vpa")
    assert controlled == {name: ["memory"] for name in counted}


def test_amounts_and_mode_are_as_given() -> None:
    bounds = {"minAllowed": {"memory": "128Mi"}, "maxAllowed": {"cpu": "1", "memory": "1Gi"}}
    given = VPA | {"resourcePolicy": bounds, "updatePolicy": {"updateMode": "Off"}}
    [admission] = _admission(vpa=given).values()
    assert admission["metadata"]["name"] == "windowbox-admission-vpa"
    assert admission["spec"]["targetRef"]["name"] == "windowbox-admission"
    for one in (admission, *_made(vpa=given).values()):
        policy = one["spec"]["resourcePolicy"]["containerPolicies"][0]
        assert {name: policy[name] for name in bounds} == bounds
        assert one["spec"]["updatePolicy"] == {"updateMode": "Off"}


@cases(
    "values reason",
    ("a-key", {"vpa": {"enable": True}}, "'enable' not allowed"),
    ("a-mode", {"vpa": {"updatePolicy": {"updateMode": "On"}}}, "value must be one of"),
    ("an-amount", {"vpa": {"resourcePolicy": {"minAllowed": {"memory": "much"}}}}, "does not match"),
)
def test_invalid_values_of_autoscalers_are_refused(values: dict[str, Any], reason: str) -> None:
    assert reason in refusal(**values)
    with pytest.raises(AssertionError, match=reason):
        _admission(**values)


def test_two_that_would_change_the_same_requests_are_refused() -> None:
    head = {"apiVersion": "autoscaling.k8s.io/v1", "kind": KIND, "metadata": {"name": "mine"}}
    second = head | {"spec": {"targetRef": {"kind": "Deployment", "name": "windowbox-watch"}}}
    refused = refusal(vpa=VPA, extraObjects=[second])
    assert f"extraObjects: {KIND} mine is for windowbox-watch, which vpa.enabled gives one" in refused
    assert of_kind(rendered(extraObjects=[second]), KIND).keys() == {"mine"}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("HorizontalPodAutoscaler", {"metrics": [BY_CPU, BY_MEMORY]}),
        ("ScaledObject", {"triggers": [{"type": "memory", "metadata": {"value": "60"}}]}),
    ],
)
def test_pods_that_are_counted_by_memory_are_refused(kind: str, spec: dict[str, Any]) -> None:
    given = [_scaler(kind, "windowbox-watch", **spec)]
    assert "windowbox-watch scales by memory" in refusal(vpa=VPA, extraObjects=given)
    assert "mine" in of_kind(rendered(extraObjects=given), kind)


def test_values_for_gardener_enable_autoscalers() -> None:
    folder = CHART.parents[1] / "gardener"
    [deployment, _] = yaml.safe_load_all((folder / "controllerregistration.yaml").read_text())
    operator = yaml.safe_load((folder / "extension.yaml").read_text())["spec"]["deployment"]
    extension, admission = operator["extension"], operator["admission"]
    for values in (deployment["helm"]["values"], extension["values"], extension["runtimeClusterValues"]):
        manifests = rendered(**values | GARDENER)
        assert len(of_kind(manifests, KIND)) == 5
        deployments = of_kind(manifests, "Deployment").values()
        assert all(one["spec"]["template"]["metadata"]["labels"] for one in deployments)
    assert len(_admission(**admission["values"])) == 1


def _scaler(kind: str, target: str, **spec: Any) -> Manifest:
    version = "keda.sh/v1alpha1" if kind == "ScaledObject" else "autoscaling/v2"
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": target}, **spec}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "mine"}, "spec": spec}
