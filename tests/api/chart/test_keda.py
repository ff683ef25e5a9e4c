"""ScaledObjects of the chart, checked by KEDA's own kinds and the parameters that its scaler reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.servers import manifests
from sandbox.servers.apiserver import ApiServer
from tests.support import helm, servers
from tests.support.helm import Manifest, of_kind, refusal, rendered
from tests.support.keda import sources
from tests.support.servers import ControlPlane
from windowbox.errors import Refused

GROUP = {"name": "a", "pools": ["dnsrecord", "worker"], "autoscaling": {"type": "keda", "lag": 5}}
SCALER = re.compile(r'^\t\w+ +\w+ +`keda:"name=(\w+),([^"`]*)"`$', re.MULTILINE)


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    if reason := servers.missing("helm"):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def keda() -> Path:
    """KEDA's sources."""
    return sources()


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane, keda: Path) -> Iterator[ApiServer]:
    """An API server that knows ScaledObjects."""
    file = keda / "config" / "crd" / "bases" / "keda.sh_scaledobjects.yaml"
    definition = yaml.safe_load(file.read_text())
    manifests.define(control_plane.api, definition)
    yield control_plane.api
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    control_plane.api.request("DELETE", f"{path}/{definition['metadata']['name']}").close()


@pytest.mark.long
def test_kedas_own_definition_takes_what_the_chart_renders(api: ApiServer) -> None:
    [scaled] = of_kind(rendered(work=[GROUP]), "ScaledObject").values()
    _create(api, scaled)
    scaled["spec"]["minReplicas"] = 1
    with pytest.raises(Refused, match=r'unknown field "spec.minReplicas"'):
        _create(api, scaled)


@pytest.mark.long
def test_the_scaler_reads_each_parameter_and_lacks_none(keda: Path) -> None:
    source = (keda / "pkg" / "scalers" / "nats_jetstream_scaler.go").read_text()
    known = {name: "optional" in rest or "default=" in rest for name, rest in SCALER.findall(source)}
    [scaled] = of_kind(rendered(work=[GROUP]), "ScaledObject").values()
    for trigger in scaled["spec"]["triggers"]:
        given = trigger["metadata"].keys()
        assert given <= known.keys()
        assert {name for name, may_lack in known.items() if not may_lack} <= given


@pytest.mark.parametrize(
    ("scaling", "kind", "reason"),
    [
        pytest.param("keda", "HorizontalPodAutoscaler", "by keda already", id="an-hpa-beside-keda"),
        pytest.param("hpa", "ScaledObject", "by hpa already", id="a-scaledobject-beside-an-hpa"),
    ],
)
def test_two_that_would_scale_the_same_pods_are_refused(scaling: str, kind: str, reason: str) -> None:
    group = {"name": "a", "pools": ["dnsrecord"], "autoscaling": {"type": scaling}}
    refused = refusal(work=[group], extraObjects=[_scaler(kind, "windowbox-work-a")])
    assert f"extraObjects: {kind} mine scales windowbox-work-a, which is scaled {reason}" in refused
    others = rendered(work=[group], extraObjects=[_scaler(kind, "something-else")])
    assert "mine" in of_kind(others, kind)


def test_a_group_has_one_way_to_scale() -> None:
    refused = refusal(work=[{"pools": ["dnsrecord"], "autoscaling": {"type": ["hpa", "keda"]}}])
    assert "work/0/autoscaling/type" in refused


def _scaler(kind: str, target: str) -> Manifest:
    version = "keda.sh/v1alpha1" if kind == "ScaledObject" else "autoscaling/v2"
    spec = {"scaleTargetRef": {"name": target}}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "mine"}, "spec": spec}


def _create(api: ApiServer, body: dict[str, Any]) -> None:
    path = f"/apis/keda.sh/v1alpha1/namespaces/{helm.NAMESPACE}/scaledobjects"
    api.create(f"{path}?dryRun=All&fieldValidation=Strict", body)
