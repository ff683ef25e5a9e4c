"""What Extensions hand to a resource manager, in which order, and what they wait for."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from bus import streams, subjects
from bus.transport.connection import Bus, connected
from tests.support.cases import cases, long
from tests.support.kindworld import Client, KindWorld
from tests.support.resourcemanager import DEPLOYMENTS, SERVICE_ACCOUNTS, ResourceManager, unpacked
from tests.support.rules import rule
from tests.support.running import eventually
from tools.bench.audit import WRITES
from windowbox.errors import Conflict
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import (
    EXTENSIONS,
    MANAGED_RESOURCES,
    NAMESPACES,
    NETWORK_POLICIES,
    RUNTIME,
    SECRETS,
    ObjectRef,
)
from windowbox.settings.bussettings import Access

SEED, SHOOT, AFTER_WORKER = "local-ext-seed", "local-ext-shoot", "local-ext-shoot-after-worker"
TYPES = (SEED, SHOOT, AFTER_WORKER)

pytestmark = [
    pytest.mark.serves(*TYPES, classes=("garden", "seed", "shoot")),
    pytest.mark.asyncio(loop_scope="module"),
]

FORCED = {"confirmation.gardener.cloud/force-deletion": "true"}
TESTED = {"test-force-delete": "true"}
"""Annotations of a Shoot: of one whose deletion is forced, and of one of a test."""
OLD = f"managedresource-{SHOOT}-00000000"


async def extend(shoot: Client, type_: str, class_: str | None = None) -> None:
    await shoot.create(EXTENSIONS, type_, {"type": type_} | ({"class": class_} if class_ else {}))


async def until_waiting(shoot: Client, type_: str, doing: str) -> Object:
    def waits(found: Object | None) -> bool:
        return bool(found and str(found.last_operation.get("description")).startswith(f"{doing}: waiting"))

    found = await shoot.until(EXTENSIONS, type_, waits)
    assert found
    assert found.last_operation["state"] == "Processing"
    assert "lastError" not in found.status
    return found


async def asked(shoot: Client, type_: str, operation: str = "reconcile") -> None:
    """Request an operation, and wait until it is reported."""
    await shoot.ask(EXTENSIONS, type_, operation)
    await shoot.until_ready(EXTENSIONS, type_)
    # Within one second, what was reported before looks like an answer.
    await shoot.world.quiet()


async def secrets(shoot: Client) -> list[str]:
    page = await shoot.kube.page(SECRETS._replace(within=shoot.namespace))
    return sorted(name for name in (Object(raw).name for raw in page.items) if name.startswith("managed"))


async def policies(shoot: Client) -> list[Object]:
    selected = NETWORK_POLICIES._replace(
        within=shoot.namespace, selector="app.kubernetes.io/name=local-ext-shoot"
    )
    return [Object(raw) for raw in (await shoot.kube.page(selected)).items]


def healthy(found: Object | None) -> bool:
    conditions = found.status.get("conditions", []) if found else []
    return {"True"} == {one["status"] for one in conditions if one["type"] == "ResourcesHealthy"}


@rule("M-1", "M-2", "M-3")
async def test_each_type_hands_its_object_to_a_resource_manager(world: KindWorld) -> None:
    shoot, handed = await world.shoot(), {}
    for type_ in TYPES:
        await extend(shoot, type_)
        found = await shoot.until(MANAGED_RESOURCES, type_, lambda found: found is not None)
        assert found
        assert found.spec.get("class") == ("seed" if type_ == SEED else None)
        assert found.spec["keepObjects"] is False
        (name,) = (one["name"] for one in found.spec["secretRefs"])
        assert list(found.annotations.values()) == [name]
        assert name.startswith(f"managedresource-{type_}-")
        (handed[type_],) = await unpacked(shoot, name)

    def account(name: str, namespace: str) -> dict[str, Any]:
        labels = {"app.kubernetes.io/name": name}
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        automount = {"automountServiceAccountToken": False}
        return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, **automount}

    assert handed[SEED] == account(SEED, shoot.namespace)
    assert handed[SHOOT] == account(SHOOT, "kube-system")
    deployment = handed[AFTER_WORKER]
    assert deployment["metadata"]["namespace"] == "kube-system"
    labels = {"app.kubernetes.io/name": AFTER_WORKER}
    spec = deployment["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"]) == (1, 2)
    assert spec["selector"] == {"matchLabels": labels}
    assert spec["template"]["metadata"]["labels"] == labels
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 0
    (container,) = pod["containers"]
    assert container["image"] == "europe-docker.pkg.dev/gardener-project/releases/3rd/alpine:3.19.1"
    assert container["command"] == ["/bin/sh", "-c", "sleep 3600"]
    secret = await shoot.kube.get(SECRETS, shoot.namespace, (await secrets(shoot))[0])
    assert (secret.raw["immutable"], secret.raw["type"]) == (True, "Opaque")
    assert secret.labels == {"resources.gardener.cloud/garbage-collectable-reference": "true"}


@cases("type_", ("M-6+B.23-seed", SEED), long("M-6+B.23-after-worker", AFTER_WORKER))
async def test_an_extension_waits_for_a_slow_resource_manager(world: KindWorld, type_: str) -> None:
    shoot = await world.shoot()
    async with ResourceManager(shoot).at_work() as slow:
        await slow.behave(slow=True)
        await extend(shoot, type_)
        waiting = await until_waiting(shoot, type_, "Reconciling the Extension")
        assert waiting.last_operation["description"] == (
            f"Reconciling the Extension: waiting for ManagedResource {shoot.namespace}/{type_} "
            "to be healthy: the resource manager has not looked at it yet"
        )
        await world.quiet()  # nobody is at it, and nobody is asked to be
        await slow.behave(failure="no such kind")
        await shoot.until(
            EXTENSIONS, type_, lambda found: found is not None and "no such kind" in str(found.status)
        )
        await slow.behave()
        done = await shoot.until_ready(EXTENSIONS, type_)
        assert done.last_operation["description"] == "Successfully reconciled Extension"
        assert done.last_operation["type"] == "Create"


@cases("type_ sleeps", ("B.23-of-a-shoot", SHOOT, False), ("C-7-for-machines-that-sleep", AFTER_WORKER, True))
async def test_an_extension_is_ready_without_a_resource_manager(
    world: KindWorld, type_: str, sleeps: bool
) -> None:
    shoot = await world.shoot(spec={"hibernation": {"enabled": sleeps}})
    await extend(shoot, type_)
    await shoot.until_ready(EXTENSIONS, type_)
    assert await shoot.get(MANAGED_RESOURCES, type_)


@cases(
    "type_ annotations",
    long("M-5-seed", SEED, {}),
    ("M-5-shoot", SHOOT, {}),
    long("M-5-after-worker", AFTER_WORKER, {}),
    ("C-8-seed-forced", SEED, FORCED),
    long("C-8-after-worker-forced", AFTER_WORKER, FORCED),
)
async def test_an_extension_stays_until_its_objects_are_gone(
    world: KindWorld, type_: str, annotations: dict[str, str]
) -> None:
    shoot = await world.shoot(metadata={"annotations": annotations})
    await shoot.secret(f"managedresource-{type_}", old=b"from long ago")
    async with ResourceManager(shoot).at_work() as slow:
        await extend(shoot, type_)
        await shoot.until_ready(EXTENSIONS, type_)
        await shoot.until(MANAGED_RESOURCES, type_, lambda found: bool(found and found.finalizers))
        await slow.behave(slow=True)
        await shoot.delete(EXTENSIONS, type_)
        await until_waiting(shoot, type_, "Deleting the Extension")
        left = await shoot.get(MANAGED_RESOURCES, type_)
        assert left
        assert left.deleting
        assert await secrets(shoot) == []  # the status tells what was applied
        await slow.behave()
        await shoot.until_gone(EXTENSIONS, type_)
        assert await secrets(shoot) == []


async def test_the_resource_manager_is_asked_whether_objects_are_gone(world: KindWorld) -> None:
    """By itself it looks after five seconds."""
    shoot = await world.shoot()

    def asked(found: Object | None) -> bool:
        return found is not None and found.deleting and found.annotations.get(OPERATION) == "reconcile"

    async with ResourceManager(shoot).at_work():
        await extend(shoot, SEED)
        await shoot.until_ready(EXTENSIONS, SEED)
        await shoot.merge(SERVICE_ACCOUNTS, SEED, {"metadata": {"finalizers": ["test/kept"]}})
        watching = asyncio.create_task(shoot.until(MANAGED_RESOURCES, SEED, asked))
        await shoot.delete(EXTENSIONS, SEED)
        assert await watching
        await shoot.merge(SERVICE_ACCOUNTS, SEED, {"metadata": {"finalizers": None}})
        await shoot.until_gone(EXTENSIONS, SEED)


@cases(
    "type_ stays",
    ("M-7-seed", SEED, False),
    long("M-7-shoot", SHOOT, True),
    long("M-7-after-worker", AFTER_WORKER, True),
)
async def test_a_migration_keeps_the_objects_in_the_shoot(world: KindWorld, type_: str, stays: bool) -> None:
    shoot = await world.shoot()
    kind = DEPLOYMENTS if type_ == AFTER_WORKER else SERVICE_ACCOUNTS
    there = world.client(shoot.namespace if type_ == SEED else "kube-system")
    async with ResourceManager(shoot).at_work():
        await extend(shoot, type_)
        await shoot.until_ready(EXTENSIONS, type_)
        before = await there.until(kind, type_, lambda found: found is not None)
        assert before
        await shoot.ask(EXTENSIONS, type_, "migrate")
        await shoot.until(EXTENSIONS, type_, lambda found: bool(found and not found.finalizers))
        assert await shoot.get(MANAGED_RESOURCES, type_) is None
        after = await there.get(kind, type_)
        assert (after is not None and after.uid == before.uid) is stays
        # The next seed takes it over.
        await asked(shoot, type_, "restore")
        back = await shoot.until_ready(EXTENSIONS, type_)
        assert back.last_operation["type"] == "Restore"
        found = await shoot.get(MANAGED_RESOURCES, type_)
        assert found
        assert found.spec["keepObjects"] is False


@rule("XT-1", "C-8")
async def test_policies_of_gardeners_tests_go_when_deletion_is_forced(world: KindWorld) -> None:
    shoot = await world.shoot(metadata={"annotations": TESTED})
    await extend(shoot, SHOOT)
    await shoot.until_ready(EXTENSIONS, SHOOT)
    found = await policies(shoot)
    assert len(found) == 2
    for one in found:
        assert one.name.startswith("test-netpol-")
        assert one.finalizers == ("extensions.gardener.cloud/local-ext-shoot",)
    # Only a request makes more of them, a repair of drift does not.
    former = await shoot.get(MANAGED_RESOURCES, SHOOT)
    assert former
    await shoot.delete(MANAGED_RESOURCES, SHOOT)
    await shoot.until(MANAGED_RESOURCES, SHOOT, lambda found: found is not None and found.uid != former.uid)
    await world.quiet()
    assert len(await policies(shoot)) == 2
    await asked(shoot, SHOOT)
    assert len(await policies(shoot)) == 4
    await shoot.cluster(metadata={"annotations": TESTED | FORCED})
    await shoot.delete(EXTENSIONS, SHOOT)
    await shoot.until_gone(EXTENSIONS, SHOOT)
    assert await policies(shoot) == []
    left = await shoot.get(MANAGED_RESOURCES, SHOOT)
    assert left, "gardenlet takes care of that"
    assert not left.deleting


@cases(
    "type_ class_",
    ("XT-2+P-1+C-4-seed-garden", SEED, "garden"),
    long("XT-2+P-1-seed-seed", SEED, "seed"),
    ("XT-2+P-1-shoot-garden", SHOOT, "garden"),
)
async def test_in_the_garden_no_shoot_is_needed(world: KindWorld, type_: str, class_: str) -> None:
    garden = world.client("garden")
    with contextlib.suppress(Conflict):
        await world.kube.create(NAMESPACES, "", {"metadata": {"name": "garden"}})
    async with ResourceManager(garden).at_work():
        await extend(garden, type_, class_=class_)
        await garden.until_ready(EXTENSIONS, type_)
        found = await garden.get(MANAGED_RESOURCES, type_)
        assert found
        role = found.labels.get("gardener.cloud/role")
        assert role == ("seed-system-component" if type_ == SEED else None)
        await garden.delete(EXTENSIONS, type_)
        await garden.until_gone(EXTENSIONS, type_)


@cases(
    "type_ class_",
    ("P-1-shoot-seed", SHOOT, "seed"),
    long("P-1-after-worker-garden", AFTER_WORKER, "garden"),
    ("T-2-other-type", "somebody-elses", "shoot"),
)
async def test_other_types_and_classes_are_left_alone(world: KindWorld, type_: str, class_: str) -> None:
    shoot = await world.shoot()
    await extend(shoot, type_, class_=class_)
    await extend(shoot, SEED)
    await shoot.until(EXTENSIONS, SEED, lambda found: bool(found and found.status))
    await world.quiet()
    found = await shoot.get(EXTENSIONS, type_)
    assert found
    assert (found.status, found.finalizers) == ({}, ())


@rule("B.26", "M-1")
async def test_a_lost_or_forged_secret_is_recreated(world: KindWorld) -> None:
    shoot = await world.shoot()
    await extend(shoot, SHOOT)
    await shoot.until_ready(EXTENSIONS, SHOOT)
    (name,) = await secrets(shoot)
    await shoot.delete(SECRETS, name)
    async with ResourceManager(shoot).at_work():  # it tells that the Secret is missing
        await shoot.until(MANAGED_RESOURCES, SHOOT, healthy)
        assert await secrets(shoot) == [name]
    await world.quiet()
    honest = await unpacked(shoot, name)
    await shoot.merge(SECRETS, name, {"metadata": {"finalizers": None}})
    await shoot.delete(SECRETS, name)
    forged = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "immutable": True}
    await shoot.kube.create(SECRETS, shoot.namespace, {**forged, "data": {"data.yaml.br": "Zm9yZ2Vk"}})
    await asked(shoot, SHOOT)
    assert await unpacked(shoot, name) == honest


@rule("F-6")
async def test_an_extension_is_reconciled_again_after_an_hour(world: KindWorld) -> None:
    shoot = await world.shoot()
    await extend(shoot, SHOOT)
    done = await shoot.until_ready(EXTENSIONS, SHOOT)
    await world.quiet()
    key = subjects.key(ObjectRef(RUNTIME, EXTENSIONS.id, shoot.namespace, SHOOT))
    async with connected(Access(world.nats.url, name="test")) as bus:
        later = await bus.last(streams.LATER, subjects.later(SHOOT, key))
        assert later
        await shoot.delete(MANAGED_RESOURCES, SHOOT)
        await eventually(lambda: _rescheduled(bus, key, later.sequence))
        due = later.headers["Nats-Schedule"].removeprefix("@at ")
    hour = str(done.last_operation["lastUpdateTime"])
    assert due[:10] >= hour[:10]
    assert (int(due[11:13]) - int(hour[11:13])) % 24 in (1, 2)


async def _rescheduled(bus: Bus, key: str, after: int) -> bool:
    later = await bus.last(streams.LATER, subjects.later(SHOOT, key))
    return later is not None and later.sequence > after


@rule("M-3", "M-4", "M-5")
async def test_secrets_exist_before_use_and_are_marked_after(world: KindWorld) -> None:
    shoot = await world.shoot()
    await shoot.secret(OLD, **{"data.yaml.br": b"old"})
    annotations = {"reference.resources.gardener.cloud/secret-0": OLD, "kept": "by somebody"}
    old = {
        "apiVersion": "resources.gardener.cloud/v1alpha1",
        "kind": "ManagedResource",
        "metadata": {"name": SHOOT, "annotations": annotations},
        "spec": {"secretRefs": [{"name": OLD}]},
    }
    await shoot.kube.create(MANAGED_RESOURCES, shoot.namespace, old)
    ref = ObjectRef(RUNTIME, MANAGED_RESOURCES.id, shoot.namespace, SHOOT)
    async with connected(Access(world.nats.url, name="test")) as bus:
        await eventually(lambda: bus.last(streams.OBJECTS, subjects.seen(ref)))
    await shoot.create(EXTENSIONS, SHOOT, {"type": SHOOT})
    await shoot.until_ready(EXTENSIONS, SHOOT)
    found = await shoot.get(MANAGED_RESOURCES, SHOOT)
    assert found
    new = found.spec["secretRefs"][0]["name"]
    assert writes(shoot) == [
        ("patch", "secrets", new),
        ("patch", "secrets", OLD),
        ("patch", "managedresources", SHOOT),
        ("patch", "managedresources", SHOOT),  # what another program's annotation says
    ]
    assert sorted(found.annotations.values()) == ["by somebody", new]
    assert await collectable(shoot) == [OLD]
    async with ResourceManager(shoot).at_work():
        await shoot.until(MANAGED_RESOURCES, SHOOT, lambda found: bool(found and found.finalizers))
        await world.quiet()
        before = writes(shoot)
        await shoot.delete(EXTENSIONS, SHOOT)
        await shoot.until_gone(EXTENSIONS, SHOOT)
    assert writes(shoot)[len(before) :][:3] == [
        ("delete", "secrets", new),
        ("delete", "secrets", f"managedresource-{SHOOT}"),
        ("delete", "managedresources", SHOOT),
    ]


async def collectable(shoot: Client) -> list[str]:
    """The Secrets that Gardener's garbage collector removes: those that nobody refers to."""
    bundles = await shoot.kube.page(MANAGED_RESOURCES._replace(within=shoot.namespace))
    used = {value for raw in bundles.items for value in Object(raw).annotations.values()}
    marked = SECRETS._replace(
        within=shoot.namespace, selector="resources.gardener.cloud/garbage-collectable-reference=true"
    )
    names = [Object(raw).name for raw in (await shoot.kube.page(marked)).items]
    return [name for name in names if name not in used]


def writes(shoot: Client) -> list[tuple[str, str, str]]:
    """What workers have written in the namespace: verb, kind, name; without the Extensions themselves."""
    log = (shoot.world.plane.kubeconfig.parent / "audit.log").read_bytes()
    found = []
    for event in map(json.loads, log.split(b"\n")[:-1]):
        about = event.get("objectRef", {})
        ours = event["user"].get("username") == "system:windowbox:worker"
        if ours and event["stage"] == "ResponseComplete" and about.get("namespace") == shoot.namespace:
            found.append((event["verb"], about["resource"], about.get("name", "")))
    return [one for one in found if one[0] in WRITES and one[1] != "extensions"]
