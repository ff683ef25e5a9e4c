"""A registry with one image, as a pull-through cache answers for another registry."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from sandbox.nodes import images
from sandbox.nodes.images import Image

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
