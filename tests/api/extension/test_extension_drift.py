"""Extensions of which somebody has changed what was made."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bus import streams, subjects
from bus.transport.connection import Bus, connected
from tests.api.extension.extending import (
    ALL_CLASSES,
    FORCED,
    SEED,
    SHOOT,
    TESTED,
    TYPES,
    asked,
    extend,
    healthy,
    manager,
    policies,
    secrets,
    unpacked,
)
from tests.support.kindworld import KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.models.refs import EXTENSIONS, MANAGED_RESOURCES, RUNTIME, SECRETS, ObjectRef
from windowbox.settings.bussettings import Access
from workers import replay

pytestmark = pytest.mark.serves(*TYPES, classes=ALL_CLASSES)


@rule("XT-1")
async def test_nothing_more_is_left_over_by_what_nobody_asked_for(world: KindWorld) -> None:
    shoot = await world.shoot(metadata={"annotations": TESTED})
    await extend(shoot, SHOOT)
    await shoot.until_ready(EXTENSIONS, SHOOT)
    former = await shoot.get(MANAGED_RESOURCES, SHOOT)
    assert former
    await shoot.delete(MANAGED_RESOURCES, SHOOT)
    await shoot.until(MANAGED_RESOURCES, SHOOT, lambda found: found is not None and found.uid != former.uid)
    await world.quiet()
    assert len(await policies(shoot)) == 2


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
        await shoot.delete(MANAGED_RESOURCES, SHOOT)
        await eventually(lambda: _rescheduled(bus, key, later.sequence))
        due = later.headers["Nats-Schedule"].removeprefix("@at ")
    hour = str(done.last_operation["lastUpdateTime"])
    assert due[:10] >= hour[:10]
    assert (int(due[11:13]) - int(hour[11:13])) % 24 in (1, 2)


async def _rescheduled(bus: Bus, key: str, after: int) -> bool:
    later = await bus.last(streams.LATER, subjects.later(SHOOT, key))
    return later is not None and later.sequence > after


@rule("B.26")
async def test_what_was_deleted_while_nobody_was_there_comes_back(
    plane: ControlPlane, nats: NatsServer
) -> None:
    async with kind_world(plane, nats, SHOOT) as world:
        shoot = await world.shoot()
        await extend(shoot, SHOOT)
        await shoot.until_ready(EXTENSIONS, SHOOT)
        await world.quiet()
    async with kube.from_file(plane.kubeconfig) as api:
        await api.delete(MANAGED_RESOURCES, shoot.namespace, SHOOT)
    async with kind_world(plane, nats, SHOOT) as world:
        back = world.client(shoot.namespace)
        await back.until(MANAGED_RESOURCES, SHOOT, lambda found: found is not None)


async def test_recorded_runs_replay_without_secret_data(world: KindWorld) -> None:
    shoot = await world.shoot(metadata={"annotations": TESTED})
    began = datetime.now(UTC)
    async with manager(shoot).at_work():
        for type_ in TYPES:
            await extend(shoot, type_)
            await shoot.until_ready(EXTENSIONS, type_)
        (held,) = {name for name in await secrets(shoot) if SEED in name}
        content = (await shoot.kube.get(SECRETS, shoot.namespace, held)).raw["data"]["data.yaml.br"]
        await shoot.cluster(metadata={"annotations": TESTED | FORCED})
        for type_ in TYPES:
            await shoot.delete(EXTENSIONS, type_)
            await shoot.until_gone(EXTENSIONS, type_)
    await world.quiet()
    recording = await world.recorded(began, *TYPES)
    result = await replay.replayed(recording)
    assert result.differences == []
    assert result.replayed >= 8
    assert content not in "".join(run.model_dump_json() for run in recording.runs)
