"""Gardener's own controllers install windowbox from deploy/gardener: gardenlet's and gardener-operator's.

Its resource manager applies what they have rendered. Pods are made, but nobody runs them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support import installing, servers, standins
from tests.support.installing import CLASSES, DONE, GARDEN, KINDS, MANIFESTS, PROGRAM, SYSTEM_CLASS
from tests.support.rules import rule
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from windowbox.clients import kube
from windowbox.clients.kube import Kube
from windowbox.errors import Conflict, Missing, TransientError
from windowbox.models.objects import Object
from windowbox.models.refs import (
    DEPLOYMENTS,
    DNSRECORDS,
    MANAGED_RESOURCES,
    PODS,
    SECRETS,
    Resource,
)
from windowbox.sandbox import resourcemanager

RESOURCES = {
    kind: Resource(group, version, plural, kind, namespaced=False)
    for group, version, plural, kind, *_ in KINDS
}
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
PRIORITIES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
ALL_PODS = PODS._replace(selector="")
INSTALLATION = "provider-local-4f7xk"
EXTENSION = f"extension-{INSTALLATION}"
PRIVILEGED = {"security.gardener.cloud/pod-security-enforce": "privileged"}
SEED: dict[str, Any] = {
    "provider": {"type": "local", "region": "local", "zones": ["0"]},
    "networks": {"pods": "10.1.0.0/16", "services": "10.2.0.0/16", "nodes": "172.18.0.0/16"},
    "settings": {"scheduling": {"visible": True}},
    "ingress": {"domain": "ingress.local.seed.local.gardener.cloud", "controller": {"kind": "nginx"}},
}
PATIENCE = 180.0


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installing.bring_charts(tmp_path_factory.mktemp("charts"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The garden, its runtime cluster and the seed, with a resource manager.

    A cluster of its own: roles that are installed into it have the names of those that other tests need.
    """
    programs = ("etcd", "kube-apiserver", "kube-controller-manager", PROGRAM, resourcemanager.PROGRAM)
    if reason := servers.missing(*programs):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("garden")
    with servers.control_plane(folder, controllers=True) as plane:
        standins.define(plane.api, KINDS)
        garden = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "garden"}}
        plane.api.apply("/api/v1/namespaces/garden", garden)
        child = resourcemanager.child(folder, plane.kubeconfig, plane.kubeconfig, "*", namespaces=("garden",))
        with servers.running(child, folder):
            yield plane


@pytest_asyncio.fixture
async def api(cluster: ControlPlane) -> AsyncIterator[Kube]:
    async with kube.from_file(cluster.kubeconfig) as opened, running(_in_place_of_kubelets(opened)):
        yield opened


async def installer(cluster: ControlPlane, charts: Path, who: str) -> asyncio.subprocess.Process:
    file = MANIFESTS / {"gardenlet": "controllerregistration.yaml", "operator": "extension.yaml"}[who]
    command = await asyncio.to_thread(installing.command, who, cluster.kubeconfig, charts, file)
    return await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)


@rule("WP-30", "WP-37")
async def test_gardenlet_installs_windowbox(cluster: ControlPlane, charts: Path, api: Kube) -> None:
    await api.create(PRIORITIES, "", {"metadata": {"name": SYSTEM_CLASS}, "value": 1000})
    await _create(api, "Seed", "local", SEED, status={"clusterIdentity": "local"})
    refs = {"registrationRef": {"name": "provider-local"}, "deploymentRef": {"name": "provider-local"}}
    await _create(
        api, "ControllerInstallation", INSTALLATION, {**refs, "seedRef": {"name": "local"}}, PRIVILEGED
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
    secrets = await _named(api, SECRETS, EXTENSION)
    assert "provider-local-windowbox-work-all-settings" in secrets

    await _gardenlet(cluster, charts)
    again = await api.get(MANAGED_RESOURCES, "garden", INSTALLATION)
    assert found
    assert again.spec == found.spec, "each reconciliation would roll all Pods out anew"


@rule("WP-31")
async def test_gardener_operator_installs_windowbox(cluster: ControlPlane, charts: Path, api: Kube) -> None:
    for name in CLASSES:
        await api.create(PRIORITIES, "", {"metadata": {"name": name}, "value": 1000})
    head, status = GARDEN["metadata"], {"lastOperation": DONE}
    await _create(api, "Garden", head["name"], {}, head["annotations"], status)
    spec = {
        "type": "local",
        "class": "garden",
        "name": "api.local.gardener.cloud",
        "recordType": "A",
        "values": ["192.0.2.1"],
        "secretRef": {"name": "dns", "namespace": "garden"},
    }
    await api.create(
        DNSRECORDS,
        "garden",
        {
            "apiVersion": "extensions.gardener.cloud/v1alpha1",
            "kind": "DNSRecord",
            "metadata": {"name": "garden"},
            "spec": spec,
        },
    )
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
    registration = await api.get(RESOURCES["ControllerRegistration"], "", "provider-local")
    classes = [one.get("clusterCompatibility", []) for one in registration.spec["resources"]]
    assert not any("garden" in one for one in classes)


async def _gardenlet(cluster: ControlPlane, charts: Path) -> None:
    process = await installer(cluster, charts, "gardenlet")
    complaint = (await process.communicate())[1].decode()
    assert process.returncode == 0, complaint


async def _create(
    api: Kube,
    kind: str,
    name: str,
    spec: dict[str, Any],
    annotations: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
) -> None:
    resource = RESOURCES[kind]
    head = {"apiVersion": f"{resource.group}/{resource.version}", "kind": kind}
    await api.create(
        resource, "", {**head, "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}
    )
    if status:
        await api.merge(resource, "", name, {"status": status}, part="status")


async def _healthy(api: Kube, name: str) -> Object | None:
    """The ManagedResource, once all that it names is applied and works."""
    found = await api.get(MANAGED_RESOURCES, "garden", name)
    said = {one["type"]: one["status"] for one in found.status.get("conditions", [])}
    return found if said.get("ResourcesApplied") == said.get("ResourcesHealthy") == "True" else None


async def _installed(api: Kube) -> dict[str, Any] | None:
    found = await api.find(RESOURCES["Extension"], "", "provider-local")
    conditions = {one["type"]: one for one in found.status.get("conditions", [])} if found else {}
    said: dict[str, Any] | None = conditions.get("Installed")
    return said if said and said["status"] == "True" else None


async def _named(api: Kube, resource: Resource, namespace: str) -> dict[str, Object]:
    found = [Object(one) for one in (await api.page(resource, namespace=namespace)).items]
    return {one.name: one for one in found}


def _variables(deployment: Object) -> dict[str, str]:
    [container] = deployment.spec["template"]["spec"]["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}


async def _in_place_of_kubelets(api: Kube) -> None:
    """Pods become ready, and StatefulSets, for which no controller runs."""
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    while True:
        for pod in [Object(one) for one in (await api.page(ALL_PODS)).items]:
            if pod.status.get("phase") == "Pending":
                await _status(api, ALL_PODS, pod, ready)
        for one in [Object(raw) for raw in (await api.page(STATEFUL_SETS)).items]:
            count, generation = one.spec["replicas"], one.metadata["generation"]
            if one.status.get("observedGeneration") != generation:
                counts = dict.fromkeys(
                    ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), count
                )
                await _status(api, STATEFUL_SETS, one, {**counts, "observedGeneration": generation})
        # Those that nobody tells of: an event of the API for each kind would be more than is shown here.
        await asyncio.sleep(0.3)


async def _status(api: Kube, resource: Resource, one: Object, status: dict[str, Any]) -> None:
    with contextlib.suppress(Missing, Conflict, TransientError):
        await api.merge(resource, one.namespace, one.name, {"status": status}, part="status")
