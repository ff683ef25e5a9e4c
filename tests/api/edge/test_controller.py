"""The states that the edge reports, through failures of the edge, the bus and other processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bus import intents, streams, subjects
from bus.messages import RunRecord, Wish
from bus.transport import consumers
from bus.transport.connection import connected
from bus.workqueue.queue import Queue
from tests.support.balancerworld import BalancerWorld, balancer_world
from tests.support.natsserver import NatsServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.clients import docker
from windowbox.errors import TransientError, Unreachable
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.settings.bussettings import Access
from workers.loadbalancer.edge import edges
from workers.loadbalancer.edgestate import EdgeState
from workers.loadbalancer.envoy.docker import attaching
from workers.loadbalancer.loadbalancerpool import BalancerParts

PLACE = f"127.67.{os.getpid() % 250}"


@pytest_asyncio.fixture
async def world(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> AsyncIterator[BalancerWorld]:
    """A cluster without nodes."""
    ranges = [{"prefixes": [f"{PLACE}.16/29"]}]
    async with balancer_world(control_plane, nats, tmp_path, "owned", ranges=ranges) as made:
        yield made


def ref(world: BalancerWorld, name: str) -> ObjectRef:
    return ObjectRef(RUNTIME, SERVICES.id, world.namespace, name)


async def digest(parts: BalancerParts, service: ObjectRef) -> str | None:
    """The digest in the state of a Service; None without a state."""
    found = None
    with contextlib.suppress(TransientError):  # the bus may be away
        found = await parts.states.get(service)
    return found.digest if found else None


async def test_states_that_others_changed_are_corrected(world: BalancerWorld) -> None:
    web, late = ref(world, "web"), ref(world, "late")
    async with world.worker() as parts:
        await world.service("web")
        await world.served("web")
        rightly = await parts.states.get(web)
        assert rightly
        wanted = (rightly.digest, None)

        async def is_right() -> bool:
            return (await digest(parts, web), await digest(parts, late)) == wanted

        await parts.states.put(late, EdgeState(uid="1", digest="2", since="3"))
        await eventually(is_right)
        await parts.states.remove(web)
        await eventually(is_right)
        await parts.states.put(web, rightly.model_copy(update={"digest": "of a former owner"}))
        await eventually(is_right)


async def test_node_changes_survive_bus_outages(
    world: BalancerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.worker() as parts:
        await world.service("followed")
        await world.reported("followed", "EnsuredLoadBalancer")
        failed = wish_that_fails_once(parts, monkeypatch)
        await world.node("one", f"{PLACE}.1")
        await world.reported("followed", "UpdatedLoadBalancer")
        assert failed


async def test_bus_outages_delay_a_release(world: BalancerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.worker() as parts:
        await world.service("leaving")
        await world.reported("leaving", "EnsuredLoadBalancer")
        failed, remove = wish_that_fails_once(parts, monkeypatch), parts.states.remove

        async def waits_for_the_edge() -> bool:
            found = await runs(world, "leaving")
            return bool(found) and found[-1].note.startswith("waiting for")

        async def removed(service: ObjectRef) -> None:
            await eventually(waits_for_the_edge)
            await remove(service)

        monkeypatch.setattr(parts.states, "remove", removed)
        await world.delete("leaving")
        await world.gone("leaving")
        assert failed


def wish_that_fails_once(parts: BalancerParts, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fail the next wish of the edge. The returned list then holds the key of its Service."""
    rightly, failed = Queue.wish, list[str]()

    async def wish(queue: Queue, key: str, asked: Wish) -> None:
        if asked.reason == "edge" and not failed:
            failed.append(key)
            await parts.states.bucket.catch_up()
            raise Unreachable("the bus is away")
        await rightly(queue, key, asked)

    monkeypatch.setattr(Queue, "wish", wish)
    return failed


async def runs(world: BalancerWorld, name: str) -> list[RunRecord]:
    """All runs of the Service."""
    subject = subjects.run("loadbalancer", subjects.key(ref(world, name)))
    async with connected(Access(world.nats.url)) as bus:
        found = consumers.snapshot(bus, streams.JOURNAL, [subject], history=True)
        return [RunRecord.model_validate_json(stored.data) async for stored in found]


async def test_a_new_edge_owner_requeues_every_service(world: BalancerWorld) -> None:
    async def told_by_the_edge() -> int:
        return sum(run.wish.reason == "edge" for run in await runs(world, "web"))

    async with world.worker():
        await world.service("web")
        await world.served("web")
    before = await told_by_the_edge()
    async with world.worker():

        async def report() -> bool:
            return await told_by_the_edge() > before

        await eventually(report)


async def test_an_envoy_that_cannot_start_delays_no_other_service(world: BalancerWorld) -> None:
    world.settings = world.settings.model_copy(update={"isolation": True})
    broken = await world.service("broken")
    folders = world.folder / "edge"
    folders.mkdir(parents=True)
    (folders / edges.box_name(broken.uid)).write_text("a file in the place of its folder")
    async with world.worker():
        said = await world.complaint("broken", "Envoy does not start")
        assert "write to" in said
        await world.service("web")
        await world.served("web")
        await world.delete("web")
        await world.gone("web")
        await world.delete("broken")
        await world.gone("broken")


async def test_a_docker_engine_that_is_away_ends_no_worker(
    world: BalancerWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = world.settings.model_copy(update={"attachment": "docker-host", "folder": tmp_path / "edge"})
    async with docker.opened(str(tmp_path / "docker.sock")) as engine:
        world.attachment = attaching.on_docker(engine, settings)
        async with world.worker():
            await eventually(
                lambda: sum("edge: " in said and "; again in" in said for said in caplog.messages) > 1
            )


async def test_a_service_no_longer_a_load_balancer_leaves_nothing(world: BalancerWorld) -> None:
    world.settings = world.settings.model_copy(update={"grace": 0.5})
    async with world.worker() as parts:
        await world.service("web")
        await world.served("web")
        await world.merge("web", {"spec": {"type": "ClusterIP"}})

        async def nothing() -> bool:
            async with connected(Access(world.nats.url)) as bus:
                reported = await intents.last(bus, subjects.key(ref(world, "web")))
            return reported.intent is None and not parts.store.holders()

        await eventually(nothing)
