"""A web server with official releases as their projects lay them out, and all that can be wrong there."""

from __future__ import annotations

import hashlib
import io
import platform
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sandbox.programs.binaries import PROGRAMS, Program

MACHINE = f"linux-{ {'x86_64': 'amd64', 'aarch64': 'arm64'}[platform.machine()] }"
KUBERNETES, ETCD, NATS = "/k8s", "/etcd", "/nats"


class Releases:
    """What is published, by path. Tests change it to what they need."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.redirects: dict[str, str] = {}
        self.shortened: set[str] = set()
        """Paths whose connection breaks off half way."""
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
        if program.module == "kubernetes":
            self.files[path] = content
            # As at the real place: nothing but the digest, without an end of line.
            self.files[f"{path}.sha256"] = hashlib.sha256(content).hexdigest().encode()
            return path
        name = path.rpartition("/")[2]
        self.files[path] = archive(name.removesuffix(".tar.gz"), program.name, content)
        digest = hashlib.sha256(self.files[path]).hexdigest()
        self.files[sums_of(program)] = f"{'0' * 64}  other.tar.gz\n{digest}  {name}\n".encode()
        return path


def path_of(program: Program) -> str:
    version = f"v{program.version}"
    if program.module == "kubernetes":
        return f"{KUBERNETES}/{version}/bin/{MACHINE.replace('-', '/')}/{program.name}"
    base = {"etcd": ETCD, "nats": NATS}[program.module or ""]
    return f"{base}/{version}/{program.name}-{version}-{MACHINE}.tar.gz"


def sums_of(program: Program) -> str:
    path = path_of(program)
    return f"{path}.sha256" if program.module == "kubernetes" else f"{path.rpartition('/')[0]}/SHA256SUMS"


def script(says: str) -> bytes:
    """A program that reports this version, and is long enough to break off in the middle."""
    return f"#!/bin/sh\necho {says}\nexit\n".encode() + b"#" * 100_000


def archive(folder: str, name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as files:
        for path, inside in ((f"{folder}/README.md", b"read me"), (f"{folder}/{name}", content)):
            entry = tarfile.TarInfo(path)
            entry.size = len(inside)
            files.addfile(entry, io.BytesIO(inside))
    return packed.getvalue()


@contextmanager
def served() -> Iterator[Releases]:
    releases = Releases()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, releases)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    releases.url = f"http://127.0.0.1:{server.server_address[1]}"
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
    path = request.path
    releases.asked.append(path)
    if path in releases.silent:
        releases.ending.wait()
        return
    if target := releases.redirects.get(path):
        request.send_response(302)
        request.send_header("Location", target)
        request.send_header("Content-Length", "0")
        request.end_headers()
        return
    if path not in releases.files:
        request.send_error(404)
        return
    content = releases.files[path]
    request.send_response(200)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    try:
        if path in releases.dripping:
            while not releases.ending.wait(0.02):
                request.wfile.write(b"#")
        else:
            half = len(content) // 2
            request.wfile.write(content[:half] if path in releases.shortened else content)
    except OSError:
        pass  # the client has gone
