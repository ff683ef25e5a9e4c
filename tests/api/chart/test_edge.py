"""The edge and its Envoy, as the chart renders them."""

from __future__ import annotations

import pytest

from tests.api.chart.test_chart import GARDENER
from tests.api.chart.test_values import RANGES
from tests.support import servers
from tests.support.helm import of_kind, rendered


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
