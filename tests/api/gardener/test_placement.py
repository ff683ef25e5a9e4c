"""The policy that chooses between real nodes and played ones, in a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers import ControlPlane
from tools.gardener import base

POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolic"
REAL, PLAYED = "windowbox.local/busybox:1", "example.org/some/thing:v1"


@pytest.fixture(scope="module")
def placing(plane: ControlPlane) -> Iterator[ControlPlane]:
    base.place_pods(plane.api)
    yield plane
    for name in ("placement.pods.windowbox", "placement.daemonsets.windowbox"):
        for kind in ("ybindings", "ies"):
            plane.api.request("DELETE", f"{POLICIES}{kind}/{name}").close()


@pytest.mark.parametrize(
    ("images", "inits", "place"),
    [
        pytest.param([REAL], [], "real", id="real"),
        pytest.param([PLAYED], [], "played", id="played"),
        pytest.param([REAL, PLAYED], [], "played", id="one-of-two"),
        pytest.param([REAL], [PLAYED], "played", id="to-begin-with"),
    ],
)
@pytest.mark.parametrize("selector", [None, {"kubernetes.io/os": "linux"}], ids=["none", "some"])
def test_a_pod_goes_where_all_its_images_are(
    placing: ControlPlane,
    images: list[str],
    inits: list[str],
    place: str,
    selector: dict[str, str] | None,
) -> None:
    spec: dict[str, Any] = {"containers": _containers(images), "initContainers": _containers(inits, "i")}
    spec = _pod(placing, spec | ({"nodeSelector": selector} if selector else {}))
    assert spec["nodeSelector"] == {**(selector or {}), base.PLACE: place}


def test_a_pod_with_a_node_stays_there(placing: ControlPlane) -> None:
    spec = _pod(placing, {"nodeName": "node-9", "containers": _containers([PLAYED])})
    assert "nodeSelector" not in spec


@pytest.mark.parametrize(("cpu", "requested"), [("8", "801m"), ("250m", "26m"), ("1m", "1m"), (None, "5m")])
def test_a_real_pod_requests_a_tenth(placing: ControlPlane, cpu: str | None, requested: str) -> None:
    """The real nodes are one machine, on which the requests of a Gardener have no room."""
    large: dict[str, Any] = {"requests": {"memory": "16Gi"}, "limits": {"memory": "32Gi"}}
    if cpu:
        large["requests"]["cpu"] = cpu
    [one], [init] = _containers([REAL]), _containers([REAL], "i")
    resources = {"resources": large}
    spec = _pod(placing, {"containers": [one | resources], "initContainers": [init | resources]})
    for one in (*spec["containers"], *spec["initContainers"]):
        assert one["resources"] == {**large, "requests": {"cpu": requested, "memory": "1Mi"}}


def test_a_real_pod_without_requests_has_small_ones(placing: ControlPlane) -> None:
    spec = _pod(placing, {"containers": _containers([REAL])})
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "5m", "memory": "1Mi"}}


def test_no_pod_is_spread_over_nodes(placing: ControlPlane) -> None:
    """Of two nodes, one may be played."""
    spread = {
        "maxSkew": 1,
        "minDomains": 2,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"a": "b"}},
    }
    spec = _pod(placing, {"containers": _containers([REAL]), "topologySpreadConstraints": [spread]})
    assert "topologySpreadConstraints" not in spec


@pytest.mark.parametrize(("image", "place"), [(REAL, "real"), (PLAYED, "played")])
def test_a_daemonset_wants_pods_on_fitting_nodes_only(placing: ControlPlane, image: str, place: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": _containers([image])}}
    made = placing.api.create(
        "/apis/apps/v1/namespaces/default/daemonsets?dryRun=All",
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "placed"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        },
    )
    assert made["spec"]["template"]["spec"]["nodeSelector"] == {base.PLACE: place}


def _containers(images: list[str], prefix: str = "c") -> list[dict[str, Any]]:
    return [{"name": f"{prefix}{number}", "image": image} for number, image in enumerate(images)]


def _pod(plane: ControlPlane, spec: dict[str, Any]) -> dict[str, Any]:
    """The spec of such a Pod as it would be stored."""
    made = plane.api.create(
        "/api/v1/namespaces/default/pods?dryRun=All",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "placed"}, "spec": spec},
    )
    found: dict[str, Any] = made["spec"]
    return found
