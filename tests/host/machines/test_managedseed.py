"""What a seed needs of the Shoot that it runs in: images by way of a cache, volumes, and load balancers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sandbox.nodes import images
from sandbox.nodes.images import BUSYBOX, ECHO
from sandbox.shoots import waiting
from tests.host.machines import registry
from tests.host.machines.conftest import ShootWorld
from tests.support import echoclient
from tests.support.worldwithnodes import NodeWorld

CACHE, PORT = "quay.registry-cache.local.gardener.cloud", 5001
INSIDE = {"namespace": "seed"}
PODS, SERVICES, CLAIMS = (
    f"/api/v1/namespaces/seed/{kind}" for kind in ("pods", "services", "persistentvolumeclaims")
)


def test_a_seed_in_a_shoot_pulls_through_its_cache_keeps_data_and_is_reached(
    world: ShootWorld, nodes: NodeWorld, tmp_path: Path
) -> None:
    address = str(urlsplit(nodes.api.url).hostname)
    world.api.apply_object(_manifest("Namespace", "seed", metadata={"name": "seed"}))
    with registry.serving(_echo(), address, PORT, tmp_path) as cache:
        _ran(world, _host_entry(f"{address} {CACHE}"))
        world.api.apply_object(_claim())
        world.api.apply_object(_server())
        world.api.apply_object(_service())
        waiting.until(world.api, PODS, "server", _running, "the server does not run", patience=90)
    assert cache.asked_for == {"quay.io"}
    assert world.api.read(f"{CLAIMS}/data")["status"]["phase"] == "Bound"
    found = waiting.until(
        world.api, SERVICES, "ingress", lambda one: bool(_address(one)), "it has no address", patience=60
    )
    answer = echoclient.until(lambda: echoclient.tcp(_address(found), 443, b"hello"))
    assert answer.said == b"hello"
    world.kubectl("delete", "namespace", "seed", "--wait=false")


def _echo() -> images.Image:
    """With a file of its own, which gives it an ID of its own.

    Of an ID that it has pulled, a kubelet does not take another name for an image that was there before.
    """
    found = next(one for one in images.images() if one.name == ECHO)
    return dataclasses.replace(found, files={**found.files, "etc/pulled": "by way of a cache\n"})


def _ran(world: ShootWorld, pod: dict[str, Any]) -> None:
    world.api.apply_object(pod)
    name = pod["metadata"]["name"]
    waiting.until(
        world.api, PODS, name, lambda one: one["status"]["phase"] == "Succeeded", f"{name} fails", patience=60
    )


def _host_entry(line: str) -> dict[str, Any]:
    """Has the machine resolve a name: the name server of Gardener's local set-up does elsewhere."""
    container = {
        "name": "write",
        "image": BUSYBOX,
        "command": ["sh", "-c", f"echo {line} >> /hosts"],
        "volumeMounts": [{"name": "hosts", "mountPath": "/hosts"}],
    }
    volume = {"name": "hosts", "hostPath": {"path": "/etc/hosts", "type": "File"}}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    return _manifest("Pod", "resolve", spec=spec)


def _claim() -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    return _manifest("PersistentVolumeClaim", "data", spec=spec)


def _server() -> dict[str, Any]:
    """Its image is in no machine; it begins when it has written to its volume."""
    mounts = [{"name": "data", "mountPath": "/data"}]
    first = {
        "name": "first",
        "image": BUSYBOX,
        "command": ["sh", "-c", "echo something > /data/file"],
        "volumeMounts": mounts,
    }
    server = {"name": "server", "image": "quay.io/windowbox/echo:1", "args": ["--tcp=8080"]}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {"initContainers": [first], "containers": [server], "volumes": volumes}
    return _manifest("Pod", "server", spec=spec, metadata={"labels": {"app": "server"}})


def _service() -> dict[str, Any]:
    ports = [{"port": 443, "targetPort": 8080}]
    return _manifest(
        "Service", "ingress", spec={"type": "LoadBalancer", "selector": {"app": "server"}, "ports": ports}
    )


def _manifest(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, **INSIDE} | fields.pop("metadata", {})
    if kind == "Namespace":
        metadata.pop("namespace", None)
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}


def _running(pod: dict[str, Any]) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def _address(service: dict[str, Any]) -> str:
    ingress = (service.get("status", {}).get("loadBalancer") or {}).get("ingress") or [{}]
    return str(ingress[0].get("ip") or "")
