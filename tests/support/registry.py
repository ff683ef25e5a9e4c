"""A registry of images with TLS and a password, of which a sandbox's nodes know the authority."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sandbox import processes
from sandbox.children import Child
from sandbox.programs import obtain
from sandbox.programs.binaries import Program
from sandbox.progress import Progress
from sandbox.servers import certificates
from tests.support import servers
from tests.support.worldwithnodes import NodeWorld

PROGRAM = Program(
    "registry", "3.1.2", (3, 0), module="registry",
    package="github.com/distribution/distribution/v3/cmd/registry", nodes=True,
)  # fmt: skip
"""Only this test runs it, so that `make setup` does not build it."""
USER, PASSWORD = "puller", "a-password-of-tests"
_PASSWORDS = "puller:$2b$05$XZl0nCp61lZHa/.qQ3MTFuJrP854jL./JKD5/UWJTxItZxTNEWjhK\n"
"""A line of htpasswd: the user, and a hash of the password."""
_BYTES = "application/octet-stream"


@dataclass(frozen=True)
class Registry:
    """A running registry."""

    address: str
    authority: Path

    def push(self, layout: Path, repository: str) -> str:
        """Bring the image of an OCI layout, a tar, as a release has it; gives the digest of its manifest."""
        with tarfile.open(layout) as archive:
            [entry] = json.loads(_content(archive, "index.json"))["manifests"]
            manifest = _content(archive, _blob(entry["digest"]))
            described = json.loads(manifest)
            for one in [described["config"], *described["layers"]]:
                self._upload(repository, one["digest"], _content(archive, _blob(one["digest"])))
        path = f"/v2/{repository}/manifests/{entry['digest']}"
        with self._request("PUT", path, manifest, entry["mediaType"]) as answer:
            return str(answer.headers["Docker-Content-Digest"])

    def secret(self, name: str, password: str = PASSWORD) -> dict[str, Any]:
        """A pull secret, as `kubectl create secret docker-registry` makes it."""
        login = {"username": USER, "password": password}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": name},
            "stringData": {".dockerconfigjson": json.dumps({"auths": {self.address: login}})},
        }

    def ready(self) -> bool:
        try:
            self._request("GET", "/v2/").close()
        except (OSError, urllib.error.HTTPError):
            return False
        return True

    def _upload(self, repository: str, digest: str, content: bytes) -> None:
        with self._request("POST", f"/v2/{repository}/blobs/uploads/", b"") as answer:
            place = str(answer.headers["Location"]).removeprefix(f"https://{self.address}")
        self._request("PUT", f"{place}&digest={digest}", content).close()

    def _request(self, method: str, path: str, body: bytes | None = None, media: str = _BYTES) -> Any:
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(
            f"https://{self.address}{path}",
            method=method,
            data=body,
            headers={"Authorization": f"Basic {login}", "Content-Type": media},
        )
        context = ssl.create_default_context(cafile=str(self.authority))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        return opener.open(request, timeout=60)


@contextlib.contextmanager
def running(world: NodeWorld, folder: Path) -> Iterator[Registry]:
    """A registry on this host, at the address where nodes reach the API server."""
    host, port = world.api.url.removeprefix("https://").rpartition(":")[0], processes.free_port()
    registry = Registry(f"{host}:{port}", world.api.ca.certificate)
    file = folder / "registry.yaml"
    file.write_text(yaml.safe_dump(_configuration(world, folder, registry)))
    for node in world.nodes:
        place = world.sandbox.folder / "nodes" / node.name / "certs.d" / registry.address
        place.mkdir(parents=True)
        known = f'[host."https://{registry.address}"]\n  ca = "{registry.authority}"\n'
        (place / "hosts.toml").write_text(known)
    program = obtain.another(PROGRAM, Progress(print, live=False))
    child = Child(
        "registry", [str(program), "serve", str(file)], ready=registry.ready, port=port, host=host,
        env={"OTEL_TRACES_EXPORTER": "none"},
    )  # fmt: skip
    with servers.running(child, folder):
        yield registry


def _configuration(world: NodeWorld, folder: Path, registry: Registry) -> dict[str, Any]:
    host = registry.address.rpartition(":")[0]
    pair = certificates.server(world.api.ca, folder, "registry", [host])
    passwords = folder / "htpasswd"
    passwords.write_text(_PASSWORDS)
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    return {
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "images")}},
        "http": {"addr": registry.address, "secret": "of a test", "tls": tls},
        "auth": {"htpasswd": {"realm": "windowbox", "path": str(passwords)}},
    }


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    found = archive.extractfile(name)
    assert found
    return found.read()
