"""A garden, its runtime cluster and a seed, all in one cluster whose Pods nobody runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandbox.servers import resourcemanager
from tests.support import servers, standins
from tests.support.installing import KINDS, PROGRAM
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Missing, TransientError
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, PODS, Resource

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
