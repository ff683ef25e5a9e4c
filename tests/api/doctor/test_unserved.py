"""Unserved kinds and types are left alone, and named by `windowbox doctor`."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bus import streams, subjects
from bus.transport.connection import connected
from sandbox.doctor import kinds
from sandbox.servers import manifests
from tests.support import forked
from tests.support.auditlog import writes_in
from tests.support.kindworld import CLOUDPROVIDER, Client, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.kinds import POOLS, UNSERVED
from windowbox.models.objects import Object
from windowbox.models.refs import (
    CONTROL_PLANES,
    DNSRECORDS,
    INFRASTRUCTURES,
    NAMESPACES,
    RUNTIME,
    WORKERS,
    Resource,
)  # fmt: skip
from windowbox.settings.bussettings import Access

GIVEN = Path(__file__).resolve().parents[3].parent / "shared" / "crds"
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
EVENTS = Resource("", "v1", "events", "Event")
UNSERVED_RESOURCES = tuple(one.resource for one in UNSERVED)
KINDS = {resource.kind: resource for resource in UNSERVED_RESOURCES}
SECRET = {"name": CLOUDPROVIDER, "namespace": "garden"}

RANGES = {"podCIDR": "10.3.0.0/16", "serviceCIDR": "10.4.0.0/16"}
POOL = {"name": "local", "selector": {"matchLabels": {"worker.gardener.cloud/pool": "local"}}}
RECORD = {"name": "a.test", "recordType": "A", "values": ["10.0.0.1"], "secretRef": SECRET}
FOREIGN: list[tuple[Resource, str, dict[str, Any]]] = [
    (KINDS["Network"], "calico", RANGES),
    (KINDS["Network"], "local", RANGES),
    (KINDS["ContainerRuntime"], "gvisor", {"binaryPath": "/var/bin/containerruntimes", "workerPool": POOL}),
    (CONTROL_PLANES, "aws", {"region": "eu", "secretRef": SECRET}),
    (WORKERS, "aws", {"region": "eu", "secretRef": SECRET, "pools": []}),
    (INFRASTRUCTURES, "aws", {"region": "eu", "secretRef": SECRET}),
    (DNSRECORDS, "google-clouddns", RECORD),
]


@pytest.fixture
def definitions(plane: ControlPlane) -> Iterator[None]:
    """The kinds that windowbox does not serve, defined for as long as a test needs them."""
    files = [GIVEN / f"10-crd-{one.group}_{one.plural}.yaml" for one in UNSERVED_RESOURCES]
    if not all(file.exists() for file in files):
        pytest.skip("the CustomResourceDefinitions of the kinds that windowbox does not serve are not here")
    manifests.define(plane.api, *(yaml.safe_load(file.read_text()) for file in files))
    try:
        yield
    finally:
        for one in UNSERVED_RESOURCES:
            plane.api.request("DELETE", CRDS.path(name=one.id)).read()
            _until_gone(plane, one)


def _until_gone(plane: ControlPlane, one: Resource) -> None:
    for event in plane.api.events(f"{CRDS.path()}?fieldSelector=metadata.name={one.id}", seconds=5):
        if event["type"] == "DELETED":
            return


async def created(shoot: Client, resource: Resource, type_: str, spec: dict[str, Any]) -> Object:
    return await shoot.create(resource, f"my-{type_}", {**spec, "type": type_})


@rule("T-2", "A.12")
@pytest.mark.usefixtures("definitions")
async def test_objects_of_unserved_types_are_left_alone(plane: ControlPlane, nats: NatsServer) -> None:
    async with kind_world(plane, nats, "infrastructure", "ingress") as world:
        shoot = await world.shoot()
        made = [await created(shoot, *foreign) for foreign in FOREIGN]
        async with connected(Access(nats.url)) as bus:

            async def seen(object: Object, resource: Resource) -> bool:
                subject = subjects.seen(object.ref(RUNTIME, resource.id))
                return await bus.last(streams.OBJECTS, subject) is not None

            for object, (resource, _, _) in zip(made, FOREIGN, strict=True):
                if resource not in UNSERVED_RESOURCES:
                    await eventually(lambda at=(object, resource): seen(*at))  # type: ignore[misc]
        await world.quiet()
        found = [
            await shoot.get(resource, one.name) for one, (resource, _, _) in zip(made, FOREIGN, strict=True)
        ]
        assert [one.raw for one in found if one] == [one.raw for one in made]
        assert not any(one.finalizers or one.status for one in made)
        reported = [
            one["involvedObject"].get("uid") for one in (await world.kube.page(EVENTS, limit=5000)).items
        ]
        assert not {one.uid for one in made} & set(reported)
        assert writes_in(world, shoot.namespace) == []


@rule("T-2", "A.12")
@pytest.mark.usefixtures("definitions")
async def test_doctor_names_objects_of_unserved_types(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    namespace = f"shoot--t--{uuid.uuid4().hex[:8]}"
    async with kube.from_file(plane.kubeconfig) as api:
        await api.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        for resource, type_, spec in FOREIGN[:3]:
            body = {
                "apiVersion": f"{resource.group}/{resource.version}",
                "kind": resource.kind,
                "metadata": {"name": f"my-{type_}"},
                "spec": {"type": type_, **spec},
            }
            await api.create(resource, namespace, body)
    found = await asyncio.to_thread(doctor, plane.kubeconfig, nats.url, tmp_path)
    waits = f"no process serves type local; clients wait in vain for {namespace}/my-local"
    assert {kind: found[f"kind {kind}"]["said"] for kind in KINDS} == {
        "Network": waits,
        "ContainerRuntime": "not served, and there is none of type local",
    }
    assert found["kind Network"]["verdict"] == "note"
    assert "calico" in found["kind Network"]["mend"]
    assert found["kind ContainerRuntime"]["verdict"] == "ok"
    assert found["pool dnsrecord"]["said"] == "DNSRecord of type local: no process serves it"
    assert "heartbeat.namespace" in found["pool heartbeat"]["mend"]


def test_doctor_ignores_kinds_that_are_not_installed(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    found = doctor(plane.kubeconfig, nats.url, tmp_path)
    assert [what for what in found if what.startswith("kind ")] == []
    assert found["pool ingress"]["verdict"] == "note"


def test_doctor_reports_missing_rights(plane: ControlPlane, nats: NatsServer, tmp_path: Path) -> None:
    found = doctor(plane.kubeconfigs["patcher"], nats.url, tmp_path)
    kinds = [what for what in found if what.startswith("kind ")]
    assert kinds == [f"kind {kind}" for kind in KINDS]
    assert all(found[kind]["verdict"] == "note" for kind in kinds)


@pytest.mark.parametrize(
    ("processes", "said"),
    [(1, "Bastion of type local: 1 process"), (3, "Bastion of type local: 3 processes")],
)
def test_a_pool_says_how_many_serve_it(processes: int, said: str) -> None:
    found = kinds.pool_finding(POOLS["bastion"], processes)
    assert (found.verdict, found.said, found.mend) == ("ok", said, "")


def test_the_documentation_knows_every_pool_and_kind() -> None:
    page = (Path(__file__).parents[3] / "docs" / "kinds.md").read_text()
    assert [pool for pool in POOLS if f"`{pool}`" not in page] == []
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []


def doctor(kubeconfig: Path, nats_url: str, folder: Path) -> dict[str, dict[str, str]]:
    """What `windowbox doctor` finds with these settings."""
    settings = folder / "settings.yaml"
    content = {"cluster": {"kubeconfig": str(kubeconfig)}, "nats": {"url": nats_url}}
    settings.write_text(yaml.safe_dump(content))
    home = {**os.environ, "WINDOWBOX_HOME": str(folder)}
    done = forked.run(
        "doctor", "--output=json", f"--settings={settings}", environment=home, folder=folder, timeout=120
    )
    return {finding["what"]: finding for finding in json.loads(done.stdout)}
