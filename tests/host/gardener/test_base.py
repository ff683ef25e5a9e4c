"""The sandbox as a Gardener finds it, without a Gardener: names, volumes, load balancers, and played Pods."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.nodes.images import BUSYBOX, ECHO
from tools.gardener.base import Base

pytestmark = pytest.mark.long

NAMESPACE = "/api/v1/namespaces/default"
SHARED = "/etc/gardener/local-backupbuckets"


def test_pods_find_the_registry_and_services_and_nobody_else(ready: Base) -> None:
    said = _run(
        ready,
        f"""
        nslookup registry.local.gardener.cloud | grep -q 'Address: {ready.host}'
        nslookup europe.registry-cache.local.gardener.cloud | grep -q 'Address: {ready.host}'
        nslookup kubernetes.default.svc.cluster.local | grep -q 'Address: {ready.ranges.services_v4[1]}'
        nslookup example.org 2>&1 | grep -o NXDOMAIN | uniq
        """,
    )
    assert said == "NXDOMAIN"


def test_a_volume_outlives_its_pod_and_all_nodes_share_a_folder(ready: Base) -> None:
    ready.api.create(
        f"{NAMESPACE}/persistentvolumeclaims",
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "kept"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    )
    volumes = [
        {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}},
        {"name": "shared", "hostPath": {"path": SHARED, "type": "DirectoryOrCreate"}},
    ]
    _run(ready, "echo volume > /kept/file; echo folder > /shared/file", volumes)
    assert _run(ready, "cat /kept/file", volumes[:1]) == "volume"
    for node in ready.plan.nodes:
        assert _run(ready, "cat /shared/file", volumes[1:], nodeName=node.name) == "folder"
    assert (ready.folder / "shared" / SHARED.strip("/") / "file").read_text() == "folder\n"


def test_pods_reach_load_balancers(ready: Base) -> None:
    server = {"name": "server", "image": ECHO, "args": ["--tcp=8080"]}
    pod = {"metadata": {"name": "server", "labels": {"a": "b"}}, "spec": {"containers": [server]}}
    ready.api.create(f"{NAMESPACE}/pods", {"apiVersion": "v1", "kind": "Pod", **pod})
    ports = [{"port": 80, "targetPort": 8080}]
    service = {"type": "LoadBalancer", "selector": {"a": "b"}, "ports": ports}
    ready.api.create(
        f"{NAMESPACE}/services",
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"}, "spec": service},
    )
    for event in ready.api.events(f"{NAMESPACE}/services?fieldSelector=metadata.name=server", seconds=60):
        if ingress := event["object"]["status"]["loadBalancer"].get("ingress"):
            break
    address = ingress[0]["ip"]
    assert "peer=" in _run(ready, f"(echo hello; sleep 1) | nc {address} 80")


def test_a_pod_of_an_unknown_image_is_played_until_it_completes(ready: Base) -> None:
    container = {"name": "unknown", "image": "example.org/unknown:1"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    ready.api.create(
        jobs,
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "played"},
            "spec": {"template": template},
        },
    )
    for event in ready.api.events(f"{jobs}?fieldSelector=metadata.name=played", seconds=60):
        if event["object"].get("status", {}).get("succeeded"):
            return
    raise AssertionError(event["object"])


def _run(ready: Base, script: str, volumes: list[dict[str, Any]] | None = None, **spec: Any) -> str:
    """The output of a script that succeeds in a Pod, with each volume at its name."""
    mounts = [{"name": one["name"], "mountPath": f"/{one['name']}"} for one in volumes or ()]
    container = {
        "name": "script",
        "image": BUSYBOX,
        "command": ["sh", "-ec", script],
        "volumeMounts": mounts,
    }
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": volumes or [], **spec}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "script-"}, "spec": spec}
    name = ready.api.create(f"{NAMESPACE}/pods", pod)["metadata"]["name"]
    for event in ready.api.events(f"{NAMESPACE}/pods?fieldSelector=metadata.name={name}", seconds=60):
        phase = event["object"]["status"]["phase"]
        if phase in ("Succeeded", "Failed"):
            break
    said = ready.api.request("GET", f"{NAMESPACE}/pods/{name}/log").read().decode().strip()
    assert phase == "Succeeded", said
    return said
