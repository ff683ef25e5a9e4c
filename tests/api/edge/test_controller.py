"""What the owner of the edges says of load balancers, whatever becomes of it, of the bus, and of others."""

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
from workers.loadbalancer.envoy import opening
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


async def stands(parts: BalancerParts, service: ObjectRef) -> bool:
    with contextlib.suppress(TransientError):  # the bus may be away
        return await parts.states.get(service) is not None
    return False


async def test_a_state_that_comes_too_late_does_not_stay(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await world.service("web")
        await world.served("web")
        late = ref(world, "late")
        await parts.states.put(late, EdgeState(uid="1", digest="2", since="3"))

        async def gone() -> bool:
            return await parts.states.get(late) is None

        await eventually(gone)


async def test_a_state_that_another_took_away_comes_back(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await world.service("web")
        await world.served("web")
        await parts.states.remove(ref(world, "web"))
        await eventually(lambda: stands(parts, ref(world, "web")))


async def test_what_a_former_owner_says_too_late_is_put_right(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await world.service("web")
        await world.served("web")
        rightly = await parts.states.get(ref(world, "web"))
        assert rightly is not None
        await parts.states.put(ref(world, "web"), rightly.model_copy(update={"digest": "of old"}))

        async def right() -> bool:
            found = await parts.states.get(ref(world, "web"))
            return found is not None and found.digest == rightly.digest

        await eventually(right)


async def test_node_changes_survive_a_bus_outage(
    world: BalancerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.worker() as parts:
        await world.service("followed")
        await world.told("followed", "EnsuredLoadBalancer")
        failed = wish_that_fails_once(parts, monkeypatch)
        await world.node("one", f"{PLACE}.1")
        await world.told("followed", "UpdatedLoadBalancer")
        assert failed


async def test_a_service_is_released_after_a_bus_outage(
    world: BalancerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.worker() as parts:
        await world.service("leaving")
        await world.told("leaving", "EnsuredLoadBalancer")
        failed, remove = wish_that_fails_once(parts, monkeypatch), parts.states.remove

        async def removed(service: ObjectRef) -> None:
            await eventually(lambda: waits_for_the_edge(world, "leaving"))
            await remove(service)

        monkeypatch.setattr(parts.states, "remove", removed)
        await world.delete("leaving")
        await world.gone("leaving")
        assert failed


def wish_that_fails_once(parts: BalancerParts, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The next time that the edge has something to tell, it cannot. Then it is noted here of whom."""
    rightly, failed = Queue.wish, list[str]()

    async def wish(queue: Queue, key: str, asked: Wish) -> None:
        if asked.reason == "edge" and not failed:
            failed.append(key)
            await parts.states.bucket.catch_up()
            raise Unreachable("the bus is away")
        await rightly(queue, key, asked)

    monkeypatch.setattr(Queue, "wish", wish)
    return failed


async def waits_for_the_edge(world: BalancerWorld, name: str) -> bool:
    """Whether the last run of the Service ended with having to wait for the edge."""
    subject = subjects.run("loadbalancer", subjects.key(ref(world, name)))
    async with connected(Access(world.nats.url)) as bus:
        last = await bus.last(streams.JOURNAL, subject)
    return last is not None and RunRecord.model_validate_json(last.data).note.startswith("waiting for")


async def test_states_that_the_bus_has_forgotten_come_back(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await world.service("web")
        where = await world.served("web")
        world.nats.wipe()
        world.nats.start()
        await eventually(lambda: stands(parts, ref(world, "web")))
        nothing = {"status": {"loadBalancer": None}}
        await world.kube.merge(SERVICES, world.namespace, "web", nothing, part="status")
        assert await world.served("web") == where


async def test_a_new_edge_owner_requeues_every_service(world: BalancerWorld) -> None:
    async with world.worker():
        await world.service("web")
        await world.served("web")
    before = await told_by_the_edge(world, "web")
    async with world.worker():

        async def told() -> bool:
            return await told_by_the_edge(world, "web") > before

        await eventually(told)


async def told_by_the_edge(world: BalancerWorld, name: str) -> int:
    """How many runs of the Service there were because the edge had asked for them."""
    subject = subjects.run("loadbalancer", subjects.key(ref(world, name)))
    async with connected(Access(world.nats.url)) as bus:
        found = consumers.snapshot(bus, streams.JOURNAL, [subject], history=True)
        runs = [RunRecord.model_validate_json(stored.data) async for stored in found]
    return sum(run.wish.reason == "edge" for run in runs)


async def test_an_envoy_that_cannot_start_holds_up_no_other_service(world: BalancerWorld) -> None:
    world.settings = world.settings.model_copy(update={"isolation": True})
    broken = await world.service("broken")
    folders = world.folder / "edge"
    folders.mkdir(parents=True)
    (folders / edges.box_name(broken.uid)).write_text("where its folder would have to be")
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
    settings = world.settings.model_copy(update={"attachment": "docker-host"})
    async with docker.opened(str(tmp_path / "docker.sock")) as engine:
        world.attachment = opening.on_docker(engine, settings)
        async with world.worker():

            async def tried_again() -> bool:
                return sum("edge: " in said and "; again in" in said for said in caplog.messages) > 1

            await eventually(tried_again)


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
