"""A garden, its runtime cluster and a seed, all in one cluster whose Pods nobody runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandbox.servers import resourcemanager
from tests.support import installing, servers, standins
from tests.support.installing import DONE, GARDEN, KINDS, PROGRAM
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Missing, TransientError
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, MANAGED_RESOURCES, PODS, Resource

RESOURCES = {
    kind: Resource(group, version, plural, kind, namespaced=False)
    for group, version, plural, kind, *_ in KINDS
}
_AUTOSCALERS = ("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler", True, True)
"""Of Gardener's own charts."""
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
PRIORITIES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
ALL_PODS = PODS._replace(selector="")
PRIVILEGED = {"security.gardener.cloud/pod-security-enforce": "privileged"}
SEED: dict[str, Any] = {
    "provider": {"type": "local", "region": "local", "zones": ["0"]},
    "networks": {"pods": "10.1.0.0/16", "services": "10.2.0.0/16", "nodes": "172.18.0.0/16"},
    "settings": {"scheduling": {"visible": True}},
    "ingress": {"domain": "ingress.local.seed.local.gardener.cloud", "controller": {"kind": "nginx"}},
}


def cluster(folder: Path) -> Iterator[ControlPlane]:
    """The cluster, with a resource manager.

    It is one of its own: roles that are installed into it have the names of those that other tests need.
    """
    programs = ("etcd", "kube-apiserver", "kube-controller-manager", PROGRAM, resourcemanager.PROGRAM)
    servers.need(*programs)
    with servers.control_plane(folder, controllers=True) as plane:
        standins.define(plane.api, (*KINDS, _AUTOSCALERS))
        garden = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "garden"}}
        plane.api.apply("/api/v1/namespaces/garden", garden)
        child = resourcemanager.child(folder, plane.kubeconfig, plane.kubeconfig, "*", namespaces=("garden",))
        with servers.running(child, folder):
            yield plane


async def create(
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


async def need_extension(api: Kube) -> None:
    """A DNSRecord of the garden, for which the runtime cluster needs an extension, too."""
    spec = {
        "type": "local",
        "class": "garden",
        "name": "api.local.gardener.cloud",
        "recordType": "A",
        "values": ["192.0.2.1"],
        "secretRef": {"name": "dns", "namespace": "garden"},
    }
    head = {"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "DNSRecord"}
    await api.create(DNSRECORDS, "garden", {**head, "metadata": {"name": "garden"}, "spec": spec})


async def priorities(api: Kube, *names: str) -> None:
    for name in names:
        await api.create(PRIORITIES, "", {"metadata": {"name": name}, "value": 1000})


async def garden(api: Kube) -> None:
    """The Garden of gardener-operator, and what it needs the extension for."""
    head = GARDEN["metadata"]
    await create(api, "Garden", head["name"], {}, head["annotations"], {"lastOperation": DONE})
    await need_extension(api)


async def seed(api: Kube) -> None:
    await create(api, "Seed", "local", SEED, status={"clusterIdentity": "local"})


async def installation(api: Kube, name: str) -> None:
    """Have gardenlet install the extension on the seed."""
    refs = {"registrationRef": {"name": "provider-local"}, "deploymentRef": {"name": "provider-local"}}
    await create(api, "ControllerInstallation", name, {**refs, "seedRef": {"name": "local"}}, PRIVILEGED)


async def gardenlet(cluster: ControlPlane, charts: Path, manifest: Path) -> None:
    """gardenlet creates what the manifest holds, and looks at all ControllerInstallations."""
    command = await asyncio.to_thread(installing.command, "gardenlet", cluster.kubeconfig, charts, manifest)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    complaint = (await process.communicate())[1].decode()
    assert process.returncode == 0, complaint


async def healthy(api: Kube, name: str) -> Object | None:
    """The ManagedResource, once all that it names is applied and works."""
    found = await api.get(MANAGED_RESOURCES, "garden", name)
    said = {one["type"]: one["status"] for one in found.status.get("conditions", [])}
    observed = found.status.get("observedGeneration") == found.generation
    return (
        found if observed and said.get("ResourcesApplied") == said.get("ResourcesHealthy") == "True" else None
    )


async def installed(api: Kube) -> dict[str, Any] | None:
    """The condition of the Extension, once gardener-operator has installed it."""
    found = await api.find(RESOURCES["Extension"], "", "provider-local")
    for one in found.status.get("conditions", []) if found else []:
        if (one["type"], one["status"]) == ("Installed", "True"):
            return dict(one)
    return None


async def in_place_of_kubelets(api: Kube) -> None:
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
