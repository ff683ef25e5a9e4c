"""What a seed needs of the Shoot that it runs in: images by way of a cache, volumes, and load balancers."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sandbox.nodes import images
from sandbox.nodes.images import BUSYBOX, ECHO, Image
from sandbox.shoots import waiting
from tests.host.machines.conftest import ShootWorld
from tests.support import echoclient
from tests.support.worldwithnodes import NodeWorld

_DOCKER = "application/vnd.docker"
_MANIFEST = f"{_DOCKER}.distribution.manifest.v2+json"


@dataclass
class Registry:
    """What it has, and for which registries it was asked."""

    manifest: bytes
    blobs: dict[str, bytes]
    asked_for: set[str] = field(default_factory=set)

    def answer(self, path: str) -> tuple[bytes, str] | None:
        """The content and its type."""
        parts = urlsplit(path)
        self.asked_for |= set(parse_qs(parts.query).get("ns", []))
        _, _, wanted = parts.path.rpartition("/")
        if "/manifests/" in parts.path:
            return self.manifest, _MANIFEST
        return (self.blobs[wanted], "application/octet-stream") if wanted in self.blobs else None


@contextlib.contextmanager
def serving(image: Image, address: str, port: int, folder: Path) -> Iterator[Registry]:
    """Serve the image, by whatever name and tag it is asked for."""
    registry = _registry(images.write(image, folder / "image.tar"))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = registry.answer(self.path)
            content, kind = found or (b"", "text/plain")
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Docker-Content-Digest", _digest(content))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer((address, port), Handler) as server:
        threading.Thread(target=server.serve_forever, name="registry", daemon=True).start()
        try:
            yield registry
        finally:
            server.shutdown()


def _registry(archive: Path) -> Registry:
    with tarfile.open(archive) as tar:
        config, layer = (_content(tar, name) for name in ("config.json", "layer.tar"))
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _described(config, f"{_DOCKER}.container.image.v1+json"),
        "layers": [_described(layer, f"{_DOCKER}.image.rootfs.diff.tar")],
    }
    return Registry(json.dumps(manifest).encode(), {_digest(blob): blob for blob in (config, layer)})


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file
    return file.read()


def _described(blob: bytes, kind: str) -> dict[str, object]:
    return {"mediaType": kind, "size": len(blob), "digest": _digest(blob)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


CACHE, PORT = "quay.registry-cache.local.gardener.cloud", 5001
INSIDE = {"namespace": "seed"}
PODS, CLAIMS = (f"/api/v1/namespaces/seed/{kind}" for kind in ("pods", "persistentvolumeclaims"))


def test_a_seed_in_a_shoot_pulls_through_its_cache_keeps_data_and_is_reached(
    world: ShootWorld, nodes: NodeWorld, tmp_path: Path
) -> None:
    address = str(urlsplit(nodes.api.url).hostname)
    world.api.apply_object(_manifest("Namespace", "seed", metadata={"name": "seed"}))
    with serving(_echo(), address, PORT, tmp_path) as cache:
        _until_pod(world, _host_entry(f"{address} {CACHE}"), "Succeeded")
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
        world.api.apply_object(_manifest("PersistentVolumeClaim", "data", spec=spec))
        ports = [{"port": 443, "targetPort": 8080}]
        balanced = {"type": "LoadBalancer", "selector": {"app": "server"}, "ports": ports}
        world.api.apply_object(_manifest("Service", "ingress", spec=balanced))
        _until_pod(world, _server(), "Running")
    assert cache.asked_for == {"quay.io"}
    assert world.api.read(f"{CLAIMS}/data")["status"]["phase"] == "Bound"
    ingress = world.until_address("ingress", "seed")
    assert echoclient.until(lambda: echoclient.tcp(ingress, 443, b"hello")).said == b"hello"
    world.kubectl("delete", "namespace", "seed", "--wait=false")


def _echo() -> images.Image:
    """With a file of its own, which gives it an ID of its own.

    Of an ID that it has pulled, a kubelet does not take another name for an image that was there before.
    """
    found = next(one for one in images.images() if one.name == ECHO)
    return dataclasses.replace(found, files={**found.files, "etc/pulled": "by way of a cache\n"})


def _until_pod(world: ShootWorld, pod: dict[str, Any], phase: str) -> None:
    """Create the Pod, and wait until it is in this phase."""
    world.api.apply_object(pod)
    name = pod["metadata"]["name"]
    lacking = f"{name} is not {phase}"
    waiting.until(world.api, PODS, name, lambda one: one["status"]["phase"] == phase, lacking, patience=90)


def _host_entry(line: str) -> dict[str, Any]:
    """Has the machine resolve a name: the name server of Gardener's local set-up does elsewhere."""
    command, mounts = ["sh", "-c", f"echo {line} >> /hosts"], [{"name": "hosts", "mountPath": "/hosts"}]
    container = {"name": "write", "image": BUSYBOX, "command": command, "volumeMounts": mounts}
    volume = {"name": "hosts", "hostPath": {"path": "/etc/hosts", "type": "File"}}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    return _manifest("Pod", "resolve", spec=spec)


def _server() -> dict[str, Any]:
    """Its image is in no machine; it begins when it has written to its volume."""
    mounts = [{"name": "data", "mountPath": "/data"}]
    command = ["sh", "-c", "echo something > /data/file"]
    first = {"name": "first", "image": BUSYBOX, "command": command, "volumeMounts": mounts}
    server = {"name": "server", "image": "quay.io/windowbox/echo:1", "args": ["--tcp=8080"]}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {"initContainers": [first], "containers": [server], "volumes": volumes}
    return _manifest("Pod", "server", spec=spec, metadata={"labels": {"app": "server"}})


def _manifest(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, **INSIDE} | fields.pop("metadata", {})
    if kind == "Namespace":
        metadata.pop("namespace", None)
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}
