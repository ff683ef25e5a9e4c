"""Extensions, from the API to what a resource manager is given."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import brotli
import pytest

from tests.api.extension.extending import (
    AFTER_WORKER,
    ALL_CLASSES,
    SEED,
    SHOOT,
    TYPES,
    extend,
    healthy,
    known,
    manager,
    secrets,
    unpacked,
    until_waiting,
)
from tests.support.kindworld import KindWorld
from tests.support.resourcemanager import SERVICE_ACCOUNTS
from tests.support.rules import rule
from tests.support.running import eventually
from tools.bench.audit import without_events, writes
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import EXTENSIONS, MANAGED_RESOURCES, SECRETS

pytestmark = pytest.mark.serves(*TYPES, classes=ALL_CLASSES)


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
async def test_an_unchanged_extension_costs_two_writes(world: KindWorld) -> None:
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
    empty = {"data.yaml.br": brotli.compress(b"")}  # type: ignore[no-untyped-call]
    await shoot.secret("old", **empty)
    old = {
        "apiVersion": "resources.gardener.cloud/v1alpha1",
        "kind": "ManagedResource",
        "metadata": {"name": SEED},
        "spec": {"secretRefs": [{"name": "old"}]},
    }
    async with manager(shoot).at_work() as slow:
        await shoot.kube.create(MANAGED_RESOURCES, shoot.namespace, old)
        await eventually(lambda: known(world, shoot.namespace, SEED, healthy))
        await slow.behave(slow=True)
        await extend(shoot, SEED)
        await until_waiting(shoot, SEED, "Reconciling the Extension")
        await slow.behave()
        await shoot.until_ready(EXTENSIONS, SEED)


@rule("B.23")
async def test_nobody_waits_for_what_is_in_the_shoot(world: KindWorld) -> None:
    shoot = await world.shoot()
    await extend(shoot, SHOOT)
    await shoot.until_ready(EXTENSIONS, SHOOT)


@rule("C-7")
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

    async with manager(shoot).at_work():
        await extend(shoot, SEED)
        await shoot.until_ready(EXTENSIONS, SEED)
        await shoot.merge(SERVICE_ACCOUNTS, SEED, {"metadata": {"finalizers": ["test/kept"]}})
        watching = asyncio.create_task(shoot.until(MANAGED_RESOURCES, SEED, asked))
        await shoot.delete(EXTENSIONS, SEED)
        assert await watching
        await shoot.merge(SERVICE_ACCOUNTS, SEED, {"metadata": {"finalizers": None}})
        await shoot.until_gone(EXTENSIONS, SEED)
