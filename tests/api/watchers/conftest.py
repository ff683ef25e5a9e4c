"""A cluster to mirror, and what was announced of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from bus import streams, subjects
from bus.messages import Announcement
from bus.transport import consumers
from bus.transport.connection import Bus
from sandbox import files, processes
from sandbox.programs import binaries
from sandbox.servers import controlplane, kubeconfigs, manifests
from tests.support import apiservers, servers, webserver
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, NAMESPACES, RUNTIME, ObjectRef

_numbers = itertools.count(1)


@contextlib.asynccontextmanager
async def serving(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """A kubeconfig for a server that answers every request by `answer`."""
    every, tls = web.route("*", "/server/{path:.*}", answer), webserver.identity().tls
    async with webserver.serving(every, tls=tls) as url:
        yield apiservers.kubeconfig(url, "server")


@dataclass(frozen=True)
class Records:
    """DNSRecords in a namespace of the test's own."""

    kube: Kube
    namespace: str

    def ref(self, name: str, cluster: str = RUNTIME) -> ObjectRef:
        return ObjectRef(cluster, DNSRECORDS.id, self.namespace, name)

    async def create(self, name: str, **metadata: Any) -> Object:
        spec = {"type": "local", "name": f"{name}.local.gardener.cloud", "recordType": "A"}
        body = {
            "apiVersion": "extensions.gardener.cloud/v1alpha1",
            "kind": "DNSRecord",
            "metadata": {"name": name, **metadata},
            "spec": {**spec, "values": ["10.0.0.1"], "secretRef": {"name": "dns"}},
        }
        return await self.kube.create(DNSRECORDS, self.namespace, body)

    async def change(self, name: str, value: str) -> Object:
        return await self.kube.merge(DNSRECORDS, self.namespace, name, {"spec": {"values": [value]}})

    async def delete(self, name: str) -> None:
        await self.kube.delete(DNSRECORDS, self.namespace, name)


@pytest_asyncio.fixture
async def records(control_plane: ControlPlane) -> AsyncIterator[Records]:
    async with in_namespace(control_plane.kubeconfig) as made:
        yield made


@contextlib.asynccontextmanager
async def in_namespace(kubeconfig: Path) -> AsyncIterator[Records]:
    async with kube.from_file(kubeconfig) as opened:
        name = f"mirrored-{next(_numbers)}"
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await opened.create(NAMESPACES, "", namespace)
        yield Records(opened, name)


async def heard(bus: Bus, records: Records, cluster: str = RUNTIME) -> list[tuple[str, str, str]]:
    """Everything that was announced of the test's namespace: operation, name and value."""
    subject = subjects.seen_namespace(cluster, DNSRECORDS.id, records.namespace)
    found = consumers.snapshot(bus, streams.OBJECTS, [subject], history=True)
    return [_described(Announcement(stored)) async for stored in found]


def _described(seen: Announcement) -> tuple[str, str, str]:
    ref = subjects.ref(subjects.without("object", seen.stored.subject))
    values = () if seen.gone else seen.object().spec.get("values", ())
    return seen.operation, ref.name, " ".join(values)


async def knows(bus: Bus, ref: ObjectRef, operation: str, value: str = "") -> bool:
    """Whether this is the last that was announced of the object."""
    stored = await bus.last(streams.OBJECTS, subjects.seen(ref))
    return stored is not None and _described(Announcement(stored)) == (operation, ref.name, value)


@dataclass(frozen=True)
class ForgetfulPlane:
    """A control plane that can be made to forget the past; watches go straight to its memory."""

    port: int
    etcd_port: int
    identity: controlplane.Identities

    def kubeconfig(self, folder: Path, port: int) -> Path:
        """A kubeconfig for the API behind this port."""
        path = folder / f"{port}.kubeconfig"
        text = kubeconfigs.text(
            f"https://127.0.0.1:{port}", self.identity.ca, controlplane.api(self.identity, port).user
        )
        files.write_private(path, text)
        return path

    async def forget(self, revision: str) -> None:
        body = json.dumps({"revision": revision, "physical": True}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.etcd_port}/v3/kv/compaction", body)
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=10).read())


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForgetfulPlane]:
    if reason := servers.missing("etcd") or servers.missing("kube-apiserver"):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("forgetful")
    identity = controlplane.identities(folder / "pki")
    port, etcd_port = processes.free_port(), processes.free_port()
    etcd = controlplane.etcd(binaries.find("etcd"), folder / "etcd", etcd_port, processes.free_port())
    server = controlplane.apiserver(
        binaries.find("kube-apiserver"), identity, port, etcd_port, ["--watch-cache=false"]
    )
    with servers.running(etcd, folder), servers.running(server, folder):
        manifests.apply_all(controlplane.api(identity, port))
        yield ForgetfulPlane(port, etcd_port, identity)
