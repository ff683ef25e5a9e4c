"""The registry of member clusters, and the presence of processes."""

from __future__ import annotations

import asyncio
import secrets
import time

import pytest

from bus.clusters.registry import Member, Registry
from bus.leases import liveness, presence
from bus.leases.leases import Leases
from bus.transport.connection import Bus, connected
from tests.support.natsserver import NatsServer, emptied, made_anew
from tests.support.running import eventually, running, soon
from windowbox.errors import Conflict, Missing
from windowbox.models.refs import SecretKey
from windowbox.settings.bussettings import Access

SHOOT = Member(id="shoot--local--a.b", secret=SecretKey(namespace="garden", name="kubeconfig"))


def knows(registry: Registry, *members: Member) -> bool:
    return registry.members == {member.id: member for member in members}


async def test_a_cluster_joins_changes_and_leaves(bus: Bus) -> None:
    registry, changes = Registry(bus), []
    registry.on_change(lambda: changes.append(dict(registry.members)))
    async with running(registry.run()):
        await soon(registry.complete.wait())
        await registry.join(SHOOT)
        await eventually(lambda: knows(registry, SHOOT))
        moved = SHOOT.model_copy(update={"file": "kubeconfig"})
        await registry.join(moved)
        await eventually(lambda: knows(registry, moved))
        await registry.leave(SHOOT.id)
        await eventually(lambda: registry.left == {SHOOT.id})
        await registry.join(SHOOT)
        await eventually(lambda: knows(registry, SHOOT))
        assert registry.left == set()
        await registry.join(other := Member(id="other", file="kubeconfig"))
        await registry.leave(other.id)
        await eventually(lambda: registry.left == {other.id})
    latecomer = Registry(bus)
    async with running(latecomer.run()):
        await soon(latecomer.complete.wait())
    assert knows(latecomer, SHOOT)
    assert changes == [
        {},
        {SHOOT.id: SHOOT},
        {SHOOT.id: moved},
        {},
        {SHOOT.id: SHOOT},
        {SHOOT.id: SHOOT, "other": other},
        {SHOOT.id: SHOOT},
    ]


async def test_a_cluster_that_is_no_member_cannot_leave(bus: Bus) -> None:
    with pytest.raises(Missing, match="no cluster 'elsewhere' is a member"):
        await Registry(bus).leave("elsewhere")
    await Registry(bus).join(SHOOT)
    await Registry(bus).leave(SHOOT.id)
    with pytest.raises(Missing):
        await Registry(bus).leave(SHOOT.id)


@pytest.mark.parametrize("data", [b"{", SHOOT.encoded()], ids=["unreadable", "under-another-name"])
async def test_a_wrong_entry_is_ignored_and_hides_no_other(bus: Bus, data: bytes) -> None:
    await bus.publish("$KV.clusters.elsewhere", data)
    await Registry(bus).join(other := Member(id="other", file="kubeconfig"))
    registry = Registry(bus)
    async with running(registry.run()):
        await soon(registry.complete.wait())
    assert registry.members == {"other": other}


async def test_a_member_is_exchanged_only_from_its_known_state(bus: Bus) -> None:
    registry, moved = Registry(bus), SHOOT.model_copy(update={"file": "kubeconfig"})
    await bus.publish("$KV.clusters.shoot--local--a_b", b"{")  # unreadable is as good as nothing
    await registry.exchange(SHOOT.id, None, SHOOT)
    for before in (None, moved):
        with pytest.raises(Conflict, match="has changed meanwhile"):
            await registry.exchange(SHOOT.id, before, None)
    await registry.exchange(SHOOT.id, SHOOT, moved)
    await registry.exchange(SHOOT.id, moved, None)
    await registry.exchange(SHOOT.id, None, SHOOT)
    async with running(registry.run()):
        await eventually(lambda: knows(registry, SHOOT))


async def test_forgotten_members_are_remembered_and_put_back(nats: NatsServer) -> None:
    gone = Member(id="gone", file="kubeconfig")
    async with connected(Access(nats.url)) as bus, connected(Access(nats.url)) as other:
        await eventually(lambda: made_anew(bus))
        registry, mere = Registry(bus), Registry(other)
        await registry.join(gone)
        await registry.join(SHOOT)
        await registry.leave(gone.id)
        async with running(registry.run(), mere.run()):
            await eventually(lambda: knows(registry, SHOOT))
            await eventually(lambda: knows(mere, SHOOT))
            await emptied(nats, bus)
            latecomer = Registry(bus)
            async with running(latecomer.run()):
                await soon(latecomer.complete.wait())
                assert latecomer.members == {}
                async with running(registry.keep()):
                    await eventually(lambda: knows(latecomer, SHOOT))
            for one in (registry, mere):
                assert one.members == {SHOOT.id: SHOOT}
            await registry.leave(SHOOT.id)
            for one in (registry, mere):
                await eventually(lambda: knows(one))  # noqa: B023


async def test_remembered_members_do_not_overwrite_newer_ones(nats: NatsServer, nats_bus: Bus) -> None:
    moved = SHOOT.model_copy(update={"file": "kubeconfig"})
    other = Member(id="other", file="kubeconfig")
    registry = Registry(nats_bus)
    async with running(registry.run(), registry.keep()):
        await registry.join(SHOOT)
        await registry.join(other)
        await eventually(lambda: knows(registry, SHOOT, other))
        nats.stop()
        await eventually(lambda: not nats_bus.connected)
        nats.wipe()
        nats.start()
        async with connected(Access(nats.url)) as another:
            await eventually(lambda: made_anew(another))
            await Registry(another).join(moved)
            await eventually(lambda: knows(registry, moved, other))
            found = await another.last("KV_clusters", "$KV.clusters.shoot--local--a_b")
            assert found
            assert found.data == moved.encoded()


async def test_every_process_answers_for_itself(bus: Bus, nats_url: str) -> None:
    watch, work = ({"role": role, "process": "host/1"} for role in ("watch", "work"))
    async with connected(Access(nats_url)) as other, presence.answering(other, lambda: watch):
        async with presence.answering(other, lambda: work):
            await eventually(lambda: answered(bus, watch, work))
        await eventually(lambda: answered(bus, watch))


async def test_a_process_that_lives_is_waited_for(bus: Bus, nats_url: str) -> None:
    reported = {"role": "watch", "process": "host/1"}
    async with connected(Access(nats_url)) as other:
        leases = Leases(other, "host/1", "watch")

        async def for_ever() -> None:
            await asyncio.Event().wait()

        async with running(leases.run(), leases.while_held("watch.one", for_ever)):
            await eventually(lambda: bus.newest_of("KV_leases", liveness.subject(">")))
            begun = time.monotonic()
            assert await presence.processes(bus) == []
            assert time.monotonic() - begun > 1  # longer than for processes of which nobody knows
            async with presence.answering(other, lambda: reported):
                await eventually(lambda: answered(bus, reported))


@pytest.mark.parametrize("state", ["watching", secrets.token_hex(1 << 20)], ids=["packed", "shortened"])
async def test_an_answer_too_large_for_a_message_is_shortened(
    one_server: NatsServer, one_bus: Bus, state: str
) -> None:
    reported: dict[str, object] = {"role": "watch", "process": "host/1", "ready": True}
    watches = {f"some-cluster-with-a-long-name-{number}/pods": "watching" for number in range(40_000)}
    large = {**reported, "watches": {**watches, "one": state}}
    async with connected(Access(one_server.url)) as other, presence.answering(other, lambda: large):
        await eventually(lambda: answered(one_bus, large if state == "watching" else reported))


async def answered(bus: Bus, *expected: object) -> bool:
    """Whether just these processes have answered; on a busy machine one may be late."""
    return await presence.processes(bus) == list(expected)
