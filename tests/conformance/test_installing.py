"""Gardener's own controllers install windowbox from deploy/gardener: gardenlet's and gardener-operator's.

Its resource manager applies the rendered manifests. Pods are created, but no kubelet runs them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.conformance import gardens
from tests.support import installing
from tests.support.installing import CLASSES, MANIFESTS, SYSTEM_CLASS
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.objects import Object
from windowbox.models.refs import DEPLOYMENTS, MANAGED_RESOURCES, SECRETS, Resource

# tests/api/chart gives what gardenlet renders to an API server, unit/chart/test_registration.py reads it.
pytestmark = pytest.mark.long

INSTALLATION = "provider-local-4f7xk"
EXTENSION = f"extension-{INSTALLATION}"
AUTOSCALERS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
PATIENCE = 180.0


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installing.bring_charts(tmp_path_factory.mktemp("charts"))


@rule("WP-30", "WP-37")
async def test_gardenlet_installs_windowbox(cluster: ControlPlane, charts: Path, api: Kube) -> None:
    await gardens.priorities(api, SYSTEM_CLASS)
    await gardens.seed(api)
    await gardens.installation(api, INSTALLATION)
    registration = MANIFESTS / "controllerregistration.yaml"
    await gardens.gardenlet(cluster, charts, registration)
    found = await eventually(lambda: gardens.healthy(api, INSTALLATION), PATIENCE)

    deployments = await _named(api, DEPLOYMENTS, EXTENSION)
    prefix = "provider-local-windowbox"
    assert deployments.keys() >= {f"{prefix}-{one}" for one in ("watch", "work-all", "patch", "admit")}
    variables = {name: _variables(one) for name, one in deployments.items()}
    assert {one["SEED_NAME"] for one in variables.values()} == {"local"}
    # Only workers connect to the garden.
    assert [name for name, one in variables.items() if "GARDEN_KUBECONFIG" in one] == [f"{prefix}-work-all"]
    autoscalers = await _named(api, AUTOSCALERS, EXTENSION)
    assert autoscalers.keys() == {f"{name}-vpa" for name in deployments}
    secrets = await _named(api, SECRETS, EXTENSION)
    assert "provider-local-windowbox-work-all-settings" in secrets

    await gardens.gardenlet(cluster, charts, registration)
    again = await api.get(MANAGED_RESOURCES, "garden", INSTALLATION)
    assert found
    assert again.spec == found.spec, "each reconciliation would roll all Pods"


@rule("WP-31")
async def test_gardener_operator_installs_windowbox(cluster: ControlPlane, charts: Path, api: Kube) -> None:
    await gardens.priorities(api, *CLASSES)
    await gardens.garden(api)
    file = MANIFESTS / "extension.yaml"
    command = await asyncio.to_thread(installing.command, "operator", cluster.kubeconfig, charts, file)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        installed = await eventually(lambda: gardens.installed(api), PATIENCE)
    finally:
        process.terminate()
        complaint = (await process.communicate())[1].decode()
    assert installed
    assert installed["reason"] == "ReconcileSuccessful", (installed, complaint)

    # The operator's cluster, the garden, and the registration for gardenlets.
    runtime = await _named(api, DEPLOYMENTS, "runtime-extension-provider-local")
    assert "windowbox-provider-local-runtime-work-all" in runtime
    [admission] = (await _named(api, DEPLOYMENTS, "garden")).values()
    assert _variables(admission)["GARDEN_KUBECONFIG"].endswith("/kubeconfig")
    pods = [admission, *runtime.values()]
    assert {one.spec["template"]["spec"]["priorityClassName"] for one in pods} == {*CLASSES}
    registration = await api.get(gardens.RESOURCES["ControllerRegistration"], "", "provider-local")
    classes = [one.get("clusterCompatibility", []) for one in registration.spec["resources"]]
    assert not any("garden" in one for one in classes)


async def _named(api: Kube, resource: Resource, namespace: str) -> dict[str, Object]:
    found = [Object(one) for one in (await api.page(resource, namespace=namespace)).items]
    return {one.name: one for one in found}


def _variables(deployment: Object) -> dict[str, str]:
    [container] = deployment.spec["template"]["spec"]["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}
