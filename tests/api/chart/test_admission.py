"""The charts of a garden's admission, with the values that gardener-operator injects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import helm
from tests.support.cases import cases
from tests.support.helm import Manifest, dry_run, of_kind
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from tools.chart.admission import APPLICATION, RUNTIME
from tools.chart.generated import CHART
from windowbox.rights import rbac
from windowbox.rights import webhookconfigurations as configurations
from windowbox.settings import settings

NAME = "gardener-extension-admission-local"
DEPLOYMENT = "windowbox-admission"
OWNER = "extension-provider-local"
CLASS = "gardener-garden-system-400"
ACCOUNT = {"name": "extension-admission-provider-local", "namespace": "kube-system"}
INJECTED: dict[str, dict[str, Any]] = {
    RUNTIME: {
        "runtimeCluster": {"priorityClassName": CLASS},
        "virtualCluster": {"enabled": True, "namespace": OWNER},
    },
    APPLICATION: {"virtualCluster": {"enabled": True, "serviceAccount": ACCOUNT}},
}


def _values() -> dict[str, Any]:
    """Those of deploy/gardener, which both charts get."""
    extension = yaml.safe_load((CHART.parents[1] / "gardener" / "extension.yaml").read_text())
    found: dict[str, Any] = extension["spec"]["deployment"]["admission"]["values"]
    return found


def _rendered(chart: str, **values: Any) -> list[Manifest]:
    place = "garden" if chart == RUNTIME else OWNER
    return helm.of_chart(chart, "provider-local", place, gardener=INJECTED[chart], **_values() | values)


@rule("WP-31")
def test_the_api_server_takes_both_charts_of_the_admission(plane: ControlPlane) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "garden"}}
    plane.api.apply("/api/v1/namespaces/garden", namespace)
    manifests = [one for chart in (RUNTIME, APPLICATION) for one in _rendered(chart)]
    names = {one["metadata"]["name"] for one in manifests}
    assert names == {NAME, DEPLOYMENT, f"{DEPLOYMENT}-settings", f"{DEPLOYMENT}-vpa"}
    known = [one for one in manifests if one["kind"] != "VerticalPodAutoscaler"]
    assert [error for one in known if (error := dry_run(plane.api, one))] == []


def test_the_admission_reaches_the_garden_as_injected_and_is_called_by_its_service(tmp_path: Path) -> None:
    manifests = _rendered(RUNTIME, settings={"log": {"level": "debug"}})
    file = tmp_path / "settings.yaml"
    file.write_text(of_kind(manifests, "Secret")[f"{DEPLOYMENT}-settings"]["stringData"]["settings.yaml"])
    read = settings.load(file)
    assert (read.webhooks.garden_lease, read.webhooks.owner_namespace) == (NAME, OWNER)
    [_, validating] = configurations.for_garden(read.webhooks, b"x")
    urls = [one["clientConfig"]["url"] for one in validating["webhooks"]]
    assert all(url.startswith(f"https://{NAME}.garden:443/") for url in urls)
    pod = helm.pod(manifests, DEPLOYMENT)
    assert pod["priorityClassName"] == CLASS
    assert pod["containers"][0]["args"][:2] == ["admit", "--garden"]
    assert of_kind(manifests, "PodDisruptionBudget").keys() == {DEPLOYMENT}


def test_the_admission_has_exactly_the_rights_of_the_table() -> None:
    assert of_kind(_rendered(RUNTIME), "Role")[NAME]["rules"] == rbac.OWN_SECRET_RULES["admission"]
    garden = _rendered(APPLICATION)
    assert of_kind(garden, "ClusterRole")[NAME]["rules"] == rbac.RULES["admission"]
    more = _rendered(APPLICATION, settings={"clouds": {"types": ["aws"]}})
    assert of_kind(more, "ClusterRole")[NAME]["rules"] == [*rbac.RULES["admission"], *rbac.CLOUD_RULES]
    [subject] = of_kind(garden, "ClusterRoleBinding")[NAME]["subjects"]
    assert subject == {"kind": "ServiceAccount", **ACCOUNT}


@cases(
    "values reason",
    ("a-value", {"replica": 3}, "'replica' not allowed"),
    ("a-setting", {"settings": {"webhook": {}}}, "'webhook' not allowed"),
    ("of-the-chart", {"settings": {"webhooks": {"namespace": "b"}}}, "settings.webhooks.namespace"),
)
def test_invalid_values_of_the_admission_are_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        _rendered(RUNTIME, **values)
