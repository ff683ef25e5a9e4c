"""Extensions, from the API to what a resource manager is given."""

from __future__ import annotations

import base64
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import brotli
import pytest
import pytest_asyncio
import yaml

from bench.audit import without_events, writes
from bus import streams, subjects
from bus.connection import Access, connected
from tests.kinds.kindworld import Client, KindWorld, kind_world
from tests.kinds.resourcemanager import DEPLOYMENTS, SERVICE_ACCOUNTS, ResourceManager
from tests.natsserver import NatsServer
from tests.rules import rule
from tests.running import eventually
from tests.servers import ControlPlane
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

SEED, SHOOT, AFTER_WORKER = "local-ext-seed", "local-ext-shoot", "local-ext-shoot-after-worker"
TYPES = (SEED, SHOOT, AFTER_WORKER)
ALL_CLASSES = ("garden", "seed", "shoot")


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    async with kind_world(plane, nats, *TYPES, classes=ALL_CLASSES) as made:
        yield made


async def extend(shoot: Client, type_: str, **options: Any) -> None:
    class_ = {"class": options.pop("class_")} if "class_" in options else {}
    await shoot.create(EXTENSIONS, type_, {"type": type_, **class_}, **options)


def manager(shoot: Client) -> ResourceManager:
    return ResourceManager(shoot.kube, shoot.namespace)


async def until_waiting(shoot: Client, type_: str, doing: str) -> Object:
    def waits(found: Object | None) -> bool:
        return found is not None and str(found.last_operation.get("description")).startswith(
            doing + ": waiting"
        )

    found = await shoot.until(EXTENSIONS, type_, waits)
    assert found
    assert found.last_operation["state"] == "Processing"
    assert "lastError" not in found.status
    return found


async def asked(shoot: Client, type_: str, operation: str = "reconcile") -> None:
    """Ask for it, and wait until it is done and told."""
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


async def unpacked(shoot: Client, name: str) -> list[dict[str, Any]]:
    secret = await shoot.kube.get(SECRETS, shoot.namespace, name)
    assert list(secret.raw["data"]) == ["data.yaml.br"]
    text = brotli.decompress(base64.b64decode(secret.raw["data"]["data.yaml.br"]))
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize(
    ("type_", "class_", "home", "kind"),
    [
        pytest.param(SEED, "seed", None, "ServiceAccount", id="M-1+M-2+M-3-seed"),
        pytest.param(SHOOT, None, "kube-system", "ServiceAccount", id="M-1+M-2+M-3-shoot"),
        pytest.param(AFTER_WORKER, None, "kube-system", "Deployment", id="M-1+M-2+M-3-after-worker"),
    ],
)
async def test_an_extension_hands_over_its_objects_and_takes_them_back(
    world: KindWorld, type_: str, class_: str | None, home: str | None, kind: str
) -> None:
    shoot = await world.shoot()
    async with manager(shoot).at_work():
        await extend(shoot, type_)
        extension = await shoot.until_ready(EXTENSIONS, type_)
        assert extension.finalizers == (f"extensions.gardener.cloud/{type_}",)
        found = await shoot.get(MANAGED_RESOURCES, type_)
        assert found
        assert found.spec.get("class") == class_
        assert found.spec["keepObjects"] is False
        (name,) = await secrets(shoot)
        assert found.spec["secretRefs"] == [{"name": name}]
        assert list(found.annotations.values()) == [name]
        (made,) = await unpacked(shoot, name)
        about = made["metadata"]
        assert (made["kind"], about["name"]) == (kind, type_)
        assert about["namespace"] == home or shoot.namespace
        await shoot.delete(EXTENSIONS, type_)
        await shoot.until_gone(EXTENSIONS, type_)
        assert await shoot.get(MANAGED_RESOURCES, type_) is None
        assert await secrets(shoot) == []


@rule("M-1", "M-2")
async def test_what_is_handed_over_is_what_was_agreed(world: KindWorld) -> None:
    shoot = await world.shoot()
    for type_ in TYPES:
        await extend(shoot, type_)
        await shoot.until(MANAGED_RESOURCES, type_, lambda found: found is not None)
    handed = {name.rpartition("-")[0]: (await unpacked(shoot, name))[0] for name in await secrets(shoot)}

    def account(name: str, namespace: str) -> dict[str, Any]:
        labels = {"app.kubernetes.io/name": name}
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        automount = {"automountServiceAccountToken": False}
        return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, **automount}

    assert handed[f"managedresource-{SEED}"] == account(SEED, shoot.namespace)
    assert handed[f"managedresource-{SHOOT}"] == account(SHOOT, "kube-system")
    deployment = handed[f"managedresource-{AFTER_WORKER}"]
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


@rule("M-4", "F-6")
async def test_an_extension_that_is_as_it_should_be_costs_the_wish_and_the_report(world: KindWorld) -> None:
    shoot = await world.shoot()
    async with manager(shoot).at_work():
        for type_ in TYPES:
            await extend(shoot, type_)
        for type_ in TYPES:
            await shoot.until_ready(EXTENSIONS, type_)
        await world.quiet()
        audit = world.audit()
        for type_ in TYPES:
            await shoot.ask(EXTENSIONS, type_)
        for type_ in TYPES:
            await shoot.until_ready(EXTENSIONS, type_)
        await world.quiet()
        asked = without_events(audit.requests())
        asked = Counter({name: count for name, count in asked.items() if writes(Counter([name]))})
        assert asked == {"patch extensions": 3, "patch extensions/status": 3}


@pytest.mark.parametrize(
    "type_", [pytest.param(SEED, id="M-6+B.23-seed"), pytest.param(AFTER_WORKER, id="M-6+B.23-after-worker")]
)
async def test_nobody_is_kept_busy_while_a_resource_manager_takes_its_time(
    world: KindWorld, type_: str
) -> None:
    shoot = await world.shoot()
    async with manager(shoot).at_work() as slow:
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


@rule("M-6")
async def test_what_was_healthy_in_an_older_version_is_waited_for_again(world: KindWorld) -> None:
    shoot = await world.shoot()
    async with manager(shoot).at_work() as slow:
        await extend(shoot, SEED)
        await shoot.until_ready(EXTENSIONS, SEED)
        await world.quiet()
        await slow.behave(slow=True)
        await shoot.merge(MANAGED_RESOURCES, SEED, {"spec": {"keepObjects": True}})
        await shoot.until(
            MANAGED_RESOURCES, SEED, lambda found: found is not None and found.spec["keepObjects"] is False
        )
        await shoot.ask(EXTENSIONS, SEED)
        await until_waiting(shoot, SEED, "Reconciling the Extension")
        await slow.behave()
        await shoot.until_ready(EXTENSIONS, SEED)


@rule("B.23")
async def test_nobody_waits_for_what_is_in_the_shoot(world: KindWorld) -> None:
    shoot = await world.shoot()
    await extend(shoot, SHOOT)
    await shoot.until_ready(EXTENSIONS, SHOOT)


@rule("C-7", "C-10")
async def test_nobody_waits_for_machines_of_a_shoot_that_sleeps(world: KindWorld) -> None:
    shoot = await world.shoot(spec={"hibernation": {"enabled": True}})
    await extend(shoot, AFTER_WORKER)
    await shoot.until_ready(EXTENSIONS, AFTER_WORKER)
    assert await shoot.get(MANAGED_RESOURCES, AFTER_WORKER)


@pytest.mark.parametrize("type_", [pytest.param(type_, id=f"M-5-{type_}") for type_ in TYPES])
async def test_an_extension_stays_until_its_objects_are_gone(world: KindWorld, type_: str) -> None:
    shoot = await world.shoot()
    await shoot.secret(f"managedresource-{type_}", old=b"from long ago")
    async with manager(shoot).at_work() as slow:
        await extend(shoot, type_)
        await shoot.until_ready(EXTENSIONS, type_)
        await shoot.until(MANAGED_RESOURCES, type_, lambda found: bool(found and found.finalizers))
        await slow.behave(slow=True)
        await shoot.delete(EXTENSIONS, type_)
        await until_waiting(shoot, type_, "Deleting the Extension")
        (left,) = await secrets(shoot)
        assert (await shoot.kube.get(SECRETS, shoot.namespace, left)).deleting
        await slow.behave()
        await shoot.until_gone(EXTENSIONS, type_)
        assert await secrets(shoot) == []


@pytest.mark.parametrize(
    ("type_", "stays"),
    [
        pytest.param(SEED, False, id="M-7-seed"),
        pytest.param(SHOOT, True, id="M-7-shoot"),
        pytest.param(AFTER_WORKER, True, id="M-7-after-worker"),
    ],
)
async def test_a_migration_leaves_in_the_shoot_what_is_there(
    world: KindWorld, type_: str, stays: bool
) -> None:
    shoot = await world.shoot()
    kind = DEPLOYMENTS if type_ == AFTER_WORKER else SERVICE_ACCOUNTS
    there = world.client(shoot.namespace if type_ == SEED else "kube-system")
    async with manager(shoot).at_work():
        await extend(shoot, type_)
        await shoot.until_ready(EXTENSIONS, type_)
        before = await there.until(kind, type_, lambda found: found is not None)
        assert before
        await shoot.ask(EXTENSIONS, type_, "migrate")
        left = await shoot.until(EXTENSIONS, type_, migrated)
        assert left
        assert left.finalizers == ()
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


def migrated(found: Object | None) -> bool:
    said = found.last_operation if found and OPERATION not in found.annotations else {}
    return (said.get("type"), said.get("state")) == ("Migrate", "Succeeded")


FORCED = {"metadata": {"annotations": {"confirmation.gardener.cloud/force-deletion": "true"}}}
TESTED = {"metadata": {"annotations": {"test-force-delete": "true"}}}
BOTH = {"metadata": {"annotations": FORCED["metadata"]["annotations"] | TESTED["metadata"]["annotations"]}}


@pytest.mark.parametrize(
    "type_", [pytest.param(SEED, id="C-8-seed"), pytest.param(AFTER_WORKER, id="C-8-after-worker")]
)
async def test_a_forced_deletion_waits_like_any_other(world: KindWorld, type_: str) -> None:
    shoot = await world.shoot()
    async with manager(shoot).at_work() as slow:
        await extend(shoot, type_)
        await shoot.until_ready(EXTENSIONS, type_)
        await slow.behave(slow=True)
        await shoot.cluster(**FORCED)
        await shoot.delete(EXTENSIONS, type_)
        await until_waiting(shoot, type_, "Deleting the Extension")
        await slow.behave()
        await shoot.until_gone(EXTENSIONS, type_)
        assert await shoot.get(MANAGED_RESOURCES, type_) is None


@rule("XT-1", "C-8")
async def test_what_a_test_has_left_over_goes_when_deletion_is_forced(world: KindWorld) -> None:
    shoot = await world.shoot(**TESTED)
    await extend(shoot, SHOOT)
    await shoot.until_ready(EXTENSIONS, SHOOT)
    found = await policies(shoot)
    assert len(found) == 2
    for one in found:
        assert one.name.startswith("test-netpol-")
        assert one.finalizers == ("extensions.gardener.cloud/local-ext-shoot",)
    await asked(shoot, SHOOT)
    assert len(await policies(shoot)) == 4
    await shoot.cluster(**BOTH)
    await shoot.delete(EXTENSIONS, SHOOT)
    await shoot.until_gone(EXTENSIONS, SHOOT)
    assert await policies(shoot) == []
    left = await shoot.get(MANAGED_RESOURCES, SHOOT)
    assert left, "gardenlet takes care of that"
    assert not left.deleting


@rule("XT-1")
async def test_nothing_more_is_left_over_by_what_nobody_asked_for(world: KindWorld) -> None:
    shoot = await world.shoot(**TESTED)
    await extend(shoot, SHOOT)
    await shoot.until_ready(EXTENSIONS, SHOOT)
    former = await shoot.get(MANAGED_RESOURCES, SHOOT)
    assert former
    await shoot.delete(MANAGED_RESOURCES, SHOOT)
    await shoot.until(MANAGED_RESOURCES, SHOOT, lambda found: found is not None and found.uid != former.uid)
    await world.quiet()
    assert len(await policies(shoot)) == 2


@pytest.mark.parametrize(
    ("type_", "class_"),
    [
        pytest.param(SEED, "garden", id="XT-2+P-1+C-4-seed-garden"),
        pytest.param(SEED, "seed", id="XT-2+P-1-seed-seed"),
        pytest.param(SHOOT, "garden", id="XT-2+P-1-shoot-garden"),
    ],
)
async def test_in_the_garden_no_shoot_is_needed(world: KindWorld, type_: str, class_: str) -> None:
    garden = await empty(world, "garden")
    async with manager(garden).at_work():
        await extend(garden, type_, class_=class_)
        await garden.until_ready(EXTENSIONS, type_)
        found = await garden.get(MANAGED_RESOURCES, type_)
        assert found
        role = found.labels.get("gardener.cloud/role")
        assert role == ("seed-system-component" if type_ == SEED else None)
        await garden.delete(EXTENSIONS, type_)
        await garden.until_gone(EXTENSIONS, type_)


async def empty(world: KindWorld, name: str) -> Client:
    with contextlib.suppress(Exception):
        await world.kube.create(NAMESPACES, "", {"metadata": {"name": name}})
    return world.client(name)


@rule("XT-2", "C-3")
async def test_what_needs_machines_waits_for_its_shoot(world: KindWorld) -> None:
    garden = await empty(world, "garden")
    await extend(garden, AFTER_WORKER)
    await world.quiet()
    found = await garden.get(EXTENSIONS, AFTER_WORKER)
    assert found
    assert (found.status, found.finalizers) == ({}, ())
    await garden.delete(EXTENSIONS, AFTER_WORKER)
    await garden.until_gone(EXTENSIONS, AFTER_WORKER)


@pytest.mark.parametrize(
    ("type_", "class_"),
    [
        pytest.param(SHOOT, "seed", id="P-1-shoot-seed"),
        pytest.param(AFTER_WORKER, "garden", id="P-1-after-worker-garden"),
        pytest.param("somebody-elses", "shoot", id="T-2-other-type"),
    ],
)
async def test_what_is_not_ours_is_left_alone(world: KindWorld, type_: str, class_: str) -> None:
    shoot = await world.shoot()
    await extend(shoot, type_, class_=class_)
    await extend(shoot, SHOOT if type_ != SHOOT else SEED)
    await shoot.until(
        EXTENSIONS, SHOOT if type_ != SHOOT else SEED, lambda found: bool(found and found.status)
    )
    await world.quiet()
    found = await shoot.get(EXTENSIONS, type_)
    assert found
    assert (found.status, found.finalizers) == ({}, ())


@rule("B.26")
async def test_what_is_deleted_or_edited_by_hand_comes_back(world: KindWorld) -> None:
    shoot = await world.shoot()
    async with manager(shoot).at_work():
        await extend(shoot, SEED)
        await shoot.until_ready(EXTENSIONS, SEED)
        before = await shoot.until(MANAGED_RESOURCES, SEED, healthy)
        assert before
        await world.quiet()

        edit = {"spec": {"class": "other", "forceOverwriteLabels": True, "secretRefs": [{"name": "none"}]}}
        await shoot.merge(MANAGED_RESOURCES, SEED, edit)
        await shoot.until(MANAGED_RESOURCES, SEED, lambda found: bool(found and found.spec == before.spec))

        await shoot.delete(MANAGED_RESOURCES, SEED)
        await shoot.until(
            MANAGED_RESOURCES, SEED, lambda found: healthy(found) and bool(found and found.uid != before.uid)
        )


def healthy(found: Object | None) -> bool:
    conditions = found.status.get("conditions", []) if found else []
    return {"True"} == {one["status"] for one in conditions if one["type"] == "ResourcesHealthy"}


@rule("B.26", "M-1")
async def test_a_secret_that_was_lost_or_forged_is_made_again(world: KindWorld) -> None:
    shoot = await world.shoot()
    await extend(shoot, SHOOT)
    await shoot.until_ready(EXTENSIONS, SHOOT)
    (name,) = await secrets(shoot)
    await shoot.delete(SECRETS, name)
    async with manager(shoot).at_work():  # it tells that the Secret is missing
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


@rule("M-3", "M-4")
async def test_the_secret_of_an_older_version_may_be_collected(world: KindWorld) -> None:
    shoot = await world.shoot()
    old = f"managedresource-{SHOOT}-00000000"
    await shoot.secret(old, **{"data.yaml.br": b"old"})
    body = {
        "apiVersion": "resources.gardener.cloud/v1alpha1",
        "kind": "ManagedResource",
        "metadata": {
            "name": SHOOT,
            "annotations": {"reference.resources.gardener.cloud/secret-0": old, "kept": "by somebody"},
        },
        "spec": {"secretRefs": [{"name": old}]},
    }
    await shoot.kube.create(MANAGED_RESOURCES, shoot.namespace, body)
    await shoot.until(MANAGED_RESOURCES, SHOOT, lambda found: found is not None)
    await eventually(lambda: known(world, shoot.namespace))
    await extend(shoot, SHOOT)
    await shoot.until_ready(EXTENSIONS, SHOOT)
    found = await shoot.get(MANAGED_RESOURCES, SHOOT)
    assert found
    (ref,) = found.spec["secretRefs"]
    assert sorted(found.annotations.values()) == ["by somebody", ref["name"]]
    assert await manager(shoot).collect() == [old]


async def known(world: KindWorld, namespace: str) -> bool:
    """Whether the bus has heard of the ManagedResource."""
    ref = ObjectRef(RUNTIME, MANAGED_RESOURCES.id, namespace, SHOOT)
    async with connected(Access(world.nats.url, name="test")) as bus:
        return await bus.last(streams.OBJECTS, subjects.seen(ref)) is not None


@rule("F-6")
async def test_everything_is_looked_at_again_after_an_hour(world: KindWorld) -> None:
    shoot = await world.shoot()
    await extend(shoot, SHOOT)
    done = await shoot.until_ready(EXTENSIONS, SHOOT)
    await world.quiet()
    key = subjects.key(ObjectRef(RUNTIME, EXTENSIONS.id, shoot.namespace, SHOOT))
    async with connected(Access(world.nats.url, name="test")) as bus:
        later = await bus.last(streams.LATER, subjects.later(SHOOT, key))
        assert later
        due = later.headers["Nats-Schedule"].removeprefix("@at ")
    hour = str(done.last_operation["lastUpdateTime"])
    assert due[:10] >= hour[:10]
    assert (int(due[11:13]) - int(hour[11:13])) % 24 in (1, 2)
