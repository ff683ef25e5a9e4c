"""Which clusters take part, and which processes are there."""

from __future__ import annotations

import pytest

from bus import presence
from bus.connection import Access, Bus, connected
from bus.registry import Member, Registry, SecretKey
from tests.natsserver import NatsServer, made_anew
from tests.running import eventually, running, soon
from windowbox.errors import Missing

SHOOT = Member(id="shoot--local--a.b", secret=SecretKey(namespace="garden", name="kubeconfig"))


async def knows(registry: Registry, *members: Member) -> bool:
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
        await eventually(lambda: knows(registry))
    assert changes == [{}, {SHOOT.id: SHOOT}, {SHOOT.id: moved}, {}]


async def test_who_comes_later_knows_who_takes_part(bus: Bus) -> None:
    other = Member(id="other", file="kubeconfig")
    for member in (SHOOT, other):
        await Registry(bus).join(member)
    await Registry(bus).leave("other")
    registry = Registry(bus)
    async with running(registry.run()):
        await soon(registry.complete.wait())
    assert registry.members == {SHOOT.id: SHOOT}


async def test_a_cluster_that_does_not_take_part_cannot_leave(bus: Bus) -> None:
    with pytest.raises(Missing, match="no cluster 'elsewhere' takes part"):
        await Registry(bus).leave("elsewhere")
    await Registry(bus).join(SHOOT)
    await Registry(bus).leave(SHOOT.id)
    with pytest.raises(Missing):
        await Registry(bus).leave(SHOOT.id)


async def test_an_entry_that_cannot_be_read_hides_no_other(bus: Bus) -> None:
    await bus.publish("$KV.clusters.nonsense", b"{")
    await Registry(bus).join(SHOOT)
    registry = Registry(bus)
    async with running(registry.run()):
        await soon(registry.complete.wait())
    assert registry.members == {SHOOT.id: SHOOT}


async def test_the_registry_of_another_store_replaces_what_was_known(nats: NatsServer) -> None:
    async with connected(Access(nats.url)) as bus:
        await eventually(lambda: made_anew(bus))
        registry = Registry(bus)
        await registry.join(SHOOT)
        async with running(registry.run()):
            await eventually(lambda: knows(registry, SHOOT))
            nats.wipe()
            nats.start()
            await eventually(lambda: made_anew(bus))
            await eventually(lambda: knows(registry))


async def test_every_process_answers_for_itself(bus: Bus, nats_url: str) -> None:
    watch, work = ({"role": role, "process": "host/1"} for role in ("watch", "work"))
    async with connected(Access(nats_url)) as other, presence.answering(other, lambda: watch):
        async with presence.answering(other, lambda: work):
            await eventually(lambda: answered(bus, watch, work))
        await eventually(lambda: answered(bus, watch))


async def answered(bus: Bus, *expected: dict[str, str]) -> bool:
    """Whether just these processes have answered; on a busy machine one may be late."""
    return await presence.processes(bus) == list(expected)
