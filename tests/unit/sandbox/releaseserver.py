"""A web server with official releases as their projects lay them out, and all that can be wrong there.

It is also a registry with images, which wants an anonymous token, and a proxy for what it has itself.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import ssl
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sandbox.programs import releases as places
from sandbox.programs.binaries import PROGRAMS, Program

MACHINE = f"linux-{ {'x86_64': 'amd64', 'aarch64': 'arm64'}[platform.machine()] }"
KUBERNETES, ETCD, NATS = "/k8s", "/etcd", "/nats"
IMAGES = "/images"
"""The part of the registry whose images hold programs."""
_TOKEN = "for anybody"


class Releases:
    """What is published, by path. Tests change it to what they need."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.ranges: list[str] = []
        """Which parts were asked for."""
        self.redirects: dict[str, str] = {}
        self.shortened: set[str] = set()
        """Paths whose connection breaks off half way, each time."""
        self.shortened_once: set[str] = set()
        self.without_ranges: set[str] = set()
        """Paths that are always sent from the beginning."""
        self.refused: dict[str, int] = {}
        """Beginnings of paths, and the status that is answered there."""
        self.silent: set[str] = set()
        """Paths that are never answered."""
        self.dripping: set[str] = set()
        """Paths that send a byte now and then, for ever."""
        self.ending = threading.Event()
        self.url = ""
        for name in ("kubectl", "kubelet", "kube-apiserver", "etcd", "nats-server"):
            self.publish(PROGRAMS[name])

    def publish(self, program: Program, content: bytes | None = None) -> str:
        """Publish a program, and return its path."""
        content = script(f"{program.name} v{program.version}") if content is None else content
        path = path_of(program)
        if _source(program) == "kubernetes":
            self.files[path] = content
            # As at the real place: nothing but the digest, without an end of line.
            self.files[f"{path}.sha256"] = hashlib.sha256(content).hexdigest().encode()
            return path
        name = path.rpartition("/")[2]
        self.files[path] = archive(name.removesuffix(".tar.gz"), program.name, content)
        digest = hashlib.sha256(self.files[path]).hexdigest()
        self.files[sums_of(program)] = f"{'0' * 64}  other.tar.gz\n{digest}  {name}\n".encode()
        return path

    def publish_image(self, repository: str, tag: str, *layers: bytes) -> str:
        """Publish an image for this machine and for another, and return the digest of its manifest."""
        digests = [self._blob(repository, layer) for layer in layers]
        kind = "application/vnd.oci.image.layer.v1.tar+gzip"
        described = [
            {"mediaType": kind, "digest": digest, "size": len(layer)}
            for digest, layer in zip(digests, layers, strict=True)
        ]
        manifest = self._manifest(repository, {"schemaVersion": 2, "layers": described})
        other = self._manifest(repository, {"schemaVersion": 2, "layers": []})
        platforms = [(other, "riscv64"), (manifest, MACHINE.partition("-")[2])]
        index = {
            "manifests": [
                {"digest": digest, "platform": {"os": "linux", "architecture": architecture}}
                for digest, architecture in platforms
            ]
        }
        self.files[f"/v2{IMAGES}/{repository}/manifests/{tag}"] = json.dumps(index).encode()
        return manifest

    def _manifest(self, repository: str, manifest: object) -> str:
        content = json.dumps(manifest).encode()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.files[f"/v2{IMAGES}/{repository}/manifests/{digest}"] = content
        return digest

    def _blob(self, repository: str, content: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        # As registries do, it sends to a store elsewhere.
        self.files[f"/store/{digest}"] = content
        self.redirects[f"/v2{IMAGES}/{repository}/blobs/{digest}"] = f"/store/{digest}"
        return digest


def mirrors(url: str) -> dict[str, str]:
    """The settings that name a server at `url` as the place of all releases and images."""
    at = {"kubernetes": KUBERNETES, "etcd": ETCD, "nats": NATS}
    return {places.setting(source): url + at.get(source, IMAGES) for source in places.known()}


def path_of(program: Program) -> str:
    version = f"v{program.version}"
    if _source(program) == "kubernetes":
        return f"{KUBERNETES}/{version}/bin/{MACHINE.replace('-', '/')}/{program.name}"
    base = {"etcd": ETCD, "nats": NATS}[_source(program)]
    return f"{base}/{version}/{program.name}-{version}-{MACHINE}.tar.gz"


def sums_of(program: Program) -> str:
    path = path_of(program)
    return f"{path}.sha256" if _source(program) == "kubernetes" else f"{path.rpartition('/')[0]}/SHA256SUMS"


def _source(program: Program) -> str:
    return next(source for source, about in places.known().items() if program.name in about["programs"])


def script(says: str) -> bytes:
    """A program that reports this version, and is long enough to break off in the middle."""
    return f"#!/bin/sh\necho {says}\nexit\n".encode() + b"#" * 100_000


def archive(folder: str, name: str, content: bytes) -> bytes:
    return layer({f"{folder}/README.md": b"read me", f"{folder}/{name}": content})


def layer(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archived:
        for path, inside in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(inside), 0o755
            archived.addfile(entry, io.BytesIO(inside))
    return packed.getvalue()


@contextmanager
def served(secured: ssl.SSLContext | None = None) -> Iterator[Releases]:
    releases = Releases()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, releases)

        def do_CONNECT(self) -> None:
            releases.asked.append(f"CONNECT {self.path}")
            self.send_error(403)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if secured:
        server.socket = secured.wrap_socket(server.socket, server_side=True)
    releases.url = f"http{'s' if secured else ''}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield releases
    finally:
        releases.ending.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(request: BaseHTTPRequestHandler, releases: Releases) -> None:
    releases.asked.append(request.path)
    # A proxy is asked for a whole URL.
    path = request.path = re.sub("^http://[^/]+", "", request.path)
    if path in releases.silent:
        releases.ending.wait()
        return
    if status := next((status for start, status in releases.refused.items() if path.startswith(start)), 0):
        request.send_error(status)
    elif path.startswith("/v2/") and request.headers.get("Authorization") != f"Bearer {_TOKEN}":
        realm = f'Bearer realm="{releases.url}/token",service="images",scope="repository:{path}:pull"'
        _head(request, 401, 0, {"WWW-Authenticate": realm})
    elif path.startswith("/token?service=images&scope=repository:"):
        content = json.dumps({"token": _TOKEN}).encode()
        _head(request, 200, len(content))
        request.wfile.write(content)
    elif target := releases.redirects.get(path):
        _head(request, 302, 0, {"Location": target})
    elif path not in releases.files:
        request.send_error(404)
    else:
        _send(request, releases)


def _head(
    request: BaseHTTPRequestHandler, status: int, length: int, headers: Mapping[str, str] | None = None
) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(length), **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()


def _send(request: BaseHTTPRequestHandler, releases: Releases) -> None:
    path = request.path
    content = releases.files[path]
    if part := request.headers.get("Range"):
        releases.ranges.append(part)
    if part and (found := re.fullmatch(r"bytes=(\d+)-", part)) and path not in releases.without_ranges:
        start, whole = int(found[1]), len(content)
        content = content[start:]
        _head(request, 206, len(content), {"Content-Range": f"bytes {start}-{whole - 1}/{whole}"})
    else:
        _head(request, 200, len(content))
    try:
        if path in releases.dripping:
            while not releases.ending.wait(0.02):
                request.wfile.write(b"#")
        elif path in releases.shortened | releases.shortened_once:
            releases.shortened_once.discard(path)
            request.wfile.write(content[: len(content) // 2])
        else:
            request.wfile.write(content)
    except OSError:
        pass  # the client has gone
