"""Gardener's own controllers install windowbox from deploy/gardener: gardenlet's and gardener-operator's.

Its resource manager applies what they have rendered. Pods are made, but nobody runs them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import gardens
from tests.support import installing
from tests.support.installing import CLASSES, DONE, GARDEN, MANIFESTS, SYSTEM_CLASS
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.objects import Object
from windowbox.models.refs import DEPLOYMENTS, MANAGED_RESOURCES, SECRETS, Resource

INSTALLATION = "provider-local-4f7xk"
EXTENSION = f"extension-{INSTALLATION}"
AUTOSCALERS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
PATIENCE = 180.0


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installing.bring_charts(tmp_path_factory.mktemp("charts"))


async def installer(cluster: ControlPlane, charts: Path, who: str) -> asyncio.subprocess.Process:
    file = MANIFESTS / {"gardenlet": "controllerregistration.yaml", "operator": "extension.yaml"}[who]
    command = await asyncio.to_thread(installing.command, who, cluster.kubeconfig, charts, file)
    return await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)


@rule("WP-30", "WP-37")
async def test_gardenlet_installs_windowbox(cluster: ControlPlane, charts: Path, api: Kube) -> None:
    await api.create(gardens.PRIORITIES, "", {"metadata": {"name": SYSTEM_CLASS}, "value": 1000})
    await gardens.create(api, "Seed", "local", gardens.SEED, status={"clusterIdentity": "local"})
    refs = {"registrationRef": {"name": "provider-local"}, "deploymentRef": {"name": "provider-local"}}
    await gardens.create(
        api,
        "ControllerInstallation",
        INSTALLATION,
        {**refs, "seedRef": {"name": "local"}},
        gardens.PRIVILEGED,
    )
    await _gardenlet(cluster, charts)
    found = await eventually(lambda: _healthy(api, INSTALLATION), PATIENCE)

    deployments = await _named(api, DEPLOYMENTS, EXTENSION)
    assert deployments.keys() >= {
        f"provider-local-windowbox-{one}" for one in ("watch", "work-all", "patch", "admit")
    }
    variables = {name: _variables(one) for name, one in deployments.items()}
    assert {one["SEED_NAME"] for one in variables.values()} == {"local"}
    # Only workers go to the garden.
    assert [name for name, one in variables.items() if "GARDEN_KUBECONFIG" in one] == [
        "provider-local-windowbox-work-all"
    ]
    autoscalers = await _named(api, AUTOSCALERS, EXTENSION)
    assert autoscalers.keys() == {f"{name}-vpa" for name in deployments}
    secrets = await _named(api, SECRETS, EXTENSION)
    assert "provider-local-windowbox-work-all-settings" in secrets

    await _gardenlet(cluster, charts)
    again = await api.get(MANAGED_RESOURCES, "garden", INSTALLATION)
    assert found
    assert again.spec == found.spec, "each reconciliation would roll all Pods out anew"


@rule("WP-31")
async def test_gardener_operator_installs_windowbox(cluster: ControlPlane, charts: Path, api: Kube) -> None:
    for name in CLASSES:
        await api.create(gardens.PRIORITIES, "", {"metadata": {"name": name}, "value": 1000})
    head, status = GARDEN["metadata"], {"lastOperation": DONE}
    await gardens.create(api, "Garden", head["name"], {}, head["annotations"], status)
    await gardens.need_extension(api)
    process = await installer(cluster, charts, "operator")
    try:
        installed = await eventually(lambda: _installed(api), PATIENCE)
    finally:
        process.terminate()
        complaint = (await process.communicate())[1].decode()
    assert installed
    assert installed["reason"] == "ReconcileSuccessful", (installed, complaint)

    # Its cluster, the garden, and what gardenlets are to install.
    runtime = await _named(api, DEPLOYMENTS, "runtime-extension-provider-local")
    assert "windowbox-provider-local-runtime-work-all" in runtime
    [admission] = (await _named(api, DEPLOYMENTS, "garden")).values()
    assert _variables(admission)["GARDEN_KUBECONFIG"].endswith("/kubeconfig")
    pods = [admission, *runtime.values()]
    assert {one.spec["template"]["spec"]["priorityClassName"] for one in pods} == {*CLASSES}
    registration = await api.get(gardens.RESOURCES["ControllerRegistration"], "", "provider-local")
    classes = [one.get("clusterCompatibility", []) for one in registration.spec["resources"]]
    assert not any("garden" in one for one in classes)


async def _gardenlet(cluster: ControlPlane, charts: Path) -> None:
    process = await installer(cluster, charts, "gardenlet")
    complaint = (await process.communicate())[1].decode()
    assert process.returncode == 0, complaint


async def _healthy(api: Kube, name: str) -> Object | None:
    """The ManagedResource, once all that it names is applied and works."""
    found = await api.get(MANAGED_RESOURCES, "garden", name)
    said = {one["type"]: one["status"] for one in found.status.get("conditions", [])}
    return found if said.get("ResourcesApplied") == said.get("ResourcesHealthy") == "True" else None


async def _installed(api: Kube) -> dict[str, Any] | None:
    found = await api.find(gardens.RESOURCES["Extension"], "", "provider-local")
    conditions = {one["type"]: one for one in found.status.get("conditions", [])} if found else {}
    said: dict[str, Any] | None = conditions.get("Installed")
    return said if said and said["status"] == "True" else None


async def _named(api: Kube, resource: Resource, namespace: str) -> dict[str, Object]:
    found = [Object(one) for one in (await api.page(resource, namespace=namespace)).items]
    return {one.name: one for one in found}


def _variables(deployment: Object) -> dict[str, str]:
    [container] = deployment.spec["template"]["spec"]["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}
