"""The edge and its Envoy, as the chart renders them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.api.chart.test_chart import GARDENER
from tests.api.chart.test_values import RANGES
from tests.support import servers
from tests.support.helm import Manifest, of_kind, refusal, rendered, rendered_from
from tools.chart.generated import CHART


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    if reason := servers.missing("helm"):
        pytest.skip(reason)


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


def test_another_version_of_the_chart_alone_leaves_the_pod_of_envoy_as_it_is(tmp_path: Path) -> None:
    values = {"edge": {"enabled": True}, "settings": RANGES, "image": {"tag": "0.2.0"}}
    newer = Path(shutil.copytree(CHART, tmp_path / "chart"))
    about = newer / "Chart.yaml"
    about.write_text(
        yaml.safe_dump({**yaml.safe_load(about.read_text()), "version": "9.9.9", "appVersion": "9.9.9"})
    )
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


def test_envoys_pod_has_what_was_given_to_the_edge_for_its_envoy() -> None:
    volume: Manifest = {"name": "programs", "hostPath": {"path": "/opt/programs"}}
    mount: Manifest = {"name": "programs", "mountPath": "/opt"}
    variable: Manifest = {"name": "LD_LIBRARY_PATH", "value": "/opt/lib"}
    settings = {"loadbalancer": {**RANGES["loadbalancer"], "envoy": "/opt/envoy"}}
    edge = {"enabled": True, "extraVolumes": [volume], "extraVolumeMounts": [mount], "extraEnv": [variable]}
    of_role = {"enabled": True, "settings": {"loadbalancer": {"envoy": "/opt/envoy"}}}
    pod, other = (
        of_kind(rendered(edge=values, settings=given), "StatefulSet")["windowbox-envoy"]["spec"]["template"][
            "spec"
        ]
        for values, given in ((edge, settings), (of_role, RANGES))
    )
    [container] = pod["containers"]
    assert volume in pod["volumes"]
    assert mount in container["volumeMounts"]
    assert container["env"] == [variable]
    assert container["args"][-1] == other["containers"][0]["args"][-1] == "--envoy=/opt/envoy"


def test_an_attachment_of_ones_own_is_refused_with_what_keeps_it() -> None:
    settings = {"loadbalancer": {**RANGES["loadbalancer"], "attachment": "process"}}
    assert 'set edge.hostPath: ""' in refusal(edge={"enabled": True}, settings=settings)
    kept = rendered(edge={"enabled": True, "hostPath": ""}, settings=settings)
    assert "windowbox-envoy" not in of_kind(kept, "StatefulSet")
