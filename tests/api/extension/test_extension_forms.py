"""Extensions that are handed over, put under force, or that belong to no Shoot."""

from __future__ import annotations

import pytest

from tests.api.extension.extending import (
    AFTER_WORKER,
    ALL_CLASSES,
    FORCED,
    SEED,
    SHOOT,
    TESTED,
    TYPES,
    asked,
    empty,
    extend,
    manager,
    migrated,
    policies,
    until_waiting,
)
from tests.support.kindworld import KindWorld
from tests.support.resourcemanager import DEPLOYMENTS, SERVICE_ACCOUNTS
from tests.support.rules import rule
from windowbox.models.refs import EXTENSIONS, MANAGED_RESOURCES

pytestmark = pytest.mark.serves(*TYPES, classes=ALL_CLASSES)


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


@pytest.mark.parametrize(
    "type_", [pytest.param(SEED, id="C-8-seed"), pytest.param(AFTER_WORKER, id="C-8-after-worker")]
)
async def test_a_forced_deletion_waits_like_any_other(world: KindWorld, type_: str) -> None:
    shoot = await world.shoot()
    async with manager(shoot).at_work() as slow:
        await extend(shoot, type_)
        await shoot.until_ready(EXTENSIONS, type_)
        await slow.behave(slow=True)
        await shoot.cluster(metadata={"annotations": FORCED})
        await shoot.delete(EXTENSIONS, type_)
        await until_waiting(shoot, type_, "Deleting the Extension")
        await slow.behave()
        await shoot.until_gone(EXTENSIONS, type_)
        assert await shoot.get(MANAGED_RESOURCES, type_) is None


@rule("XT-1", "C-8")
async def test_what_a_test_has_left_over_goes_when_deletion_is_forced(world: KindWorld) -> None:
    shoot = await world.shoot(metadata={"annotations": TESTED})
    await extend(shoot, SHOOT)
    await shoot.until_ready(EXTENSIONS, SHOOT)
    found = await policies(shoot)
    assert len(found) == 2
    for one in found:
        assert one.name.startswith("test-netpol-")
        assert one.finalizers == ("extensions.gardener.cloud/local-ext-shoot",)
    await asked(shoot, SHOOT)
    assert len(await policies(shoot)) == 4
    await shoot.cluster(metadata={"annotations": TESTED | FORCED})
    await shoot.delete(EXTENSIONS, SHOOT)
    await shoot.until_gone(EXTENSIONS, SHOOT)
    assert await policies(shoot) == []
    left = await shoot.get(MANAGED_RESOURCES, SHOOT)
    assert left, "gardenlet takes care of that"
    assert not left.deleting


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
