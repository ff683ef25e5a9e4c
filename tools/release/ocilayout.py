"""An image as an OCI layout: a tar that skopeo, podman, containerd and docker load."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import platform
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.nodes import images
from sandbox.nodes.images import Image

_MEDIA = "application/vnd.oci.image"


def write(image: Image, path: Path, version: str) -> str:
    """Write the layout. Returns the digest of the image's manifest."""
    blobs: dict[str, bytes] = {}
    layer, uncompressed = _layer(image)
    config = images.config(image, uncompressed) | {"created": "1970-01-01T00:00:00Z"}
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA}.manifest.v1+json",
        "config": _blob(blobs, _json(config), f"{_MEDIA}.config.v1+json"),
        "layers": [_blob(blobs, layer, f"{_MEDIA}.layer.v1.tar+gzip")],
        "annotations": {"org.opencontainers.image.version": version},
    }
    entry = _blob(blobs, _json(manifest), f"{_MEDIA}.manifest.v1+json")
    architecture = images.ARCHITECTURES.get(platform.machine(), platform.machine())
    entry |= {
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": {
            "io.containerd.image.name": f"windowbox:{version}",
            "org.opencontainers.image.ref.name": version,
        },
    }
    index = {"schemaVersion": 2, "mediaType": f"{_MEDIA}.index.v1+json", "manifests": [entry]}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    with tarfile.open(path, "w") as archive:
        for name, content in sorted(
            (files | {f"blobs/sha256/{key}": data for key, data in blobs.items()}).items()
        ):
            head = tarfile.TarInfo(name)
            head.size = len(content)
            archive.addfile(head, io.BytesIO(content))
    return str(entry["digest"])


def _layer(image: Image) -> tuple[bytes, str]:
    """The compressed layer, and the digest of the uncompressed one."""
    # Bytecode and modification times differ between machines.
    files = {name: source for name, source in image.files.items() if "__pycache__" not in name}
    image = dataclasses.replace(image, files=dict(sorted(files.items())))
    with tempfile.TemporaryFile() as content:
        images.write_layer(image, content, time=0)
        content.seek(0)
        plain = content.read()
    compressed = io.BytesIO()
    with gzip.GzipFile(fileobj=compressed, mode="wb", filename="", mtime=0, compresslevel=6) as stream:
        stream.write(plain)
    return compressed.getvalue(), hashlib.sha256(plain).hexdigest()


def _blob(blobs: dict[str, bytes], content: bytes, media: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
