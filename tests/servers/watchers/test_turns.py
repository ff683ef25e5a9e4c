"""What a mirror that may not publish leaves to others, and how a loss of the bus is noticed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bus import streams, subjects
from bus.transport.connection import Bus
from sandbox import files
from tests.support.apiservers import ApiServers
from tests.support.running import running, soon
from watchers import limits as bounds
from watchers.continuity import Continuity, Permit
from watchers.limits import Shared
from watchers.mirror import Mirror
from windowbox.clients.kubernetes import kube
from windowbox.errors import Superseded, Unreachable
from windowbox.models.refs import SERVICES, ObjectRef


async def test_mirrors_whose_lease_is_lost_leave_their_turns_to_others(
    bus: Bus, apis: ApiServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await streams.ensure(bus)
    monkeypatch.setattr(bounds, "_UNFINISHED", 4)
    monkeypatch.setattr(bounds, "_LISTINGS", 1)
    shared, held, lost, publish = Shared(bus), asyncio.Event(), asyncio.Event(), bus.publish
    held.set()

    async def losing(subject: str, *rest: Any, **more: Any) -> int | None:
        if subject.startswith(subjects.seen_cluster("waits").removesuffix(">")) and not lost.is_set():
            held.clear()
            asyncio.get_running_loop().call_soon(lost.set)
            raise Unreachable("the bus is away, and the lease with it")
        return await publish(subject, *rest, **more)

    monkeypatch.setattr(bus, "publish", losing)
    apis.fill("tenant", SERVICES, 8)
    files.write_private(tmp_path / "tenant", apis.kubeconfig("tenant"))
    async with kube.from_file(tmp_path / "tenant") as opened:
        waits = Mirror(bus, opened, "waits", SERVICES, shared, Permit(held))
        other = Mirror(bus, opened, "other", SERVICES, shared)
        async with running(waits.run()):
            await soon(lost.wait())
            async with running(other.run()):
                await soon(other.listed.wait())
            assert not waits.listed.is_set()
            held.set()
            await soon(waits.listed.wait())


async def test_the_loss_of_a_listing_without_objects_is_noticed(
    bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    await streams.ensure(bus)
    files.write_private(tmp_path / "tenant", apis.kubeconfig("tenant"))
    async with kube.from_file(tmp_path / "tenant") as opened:
        mirror = Mirror(bus, opened, "tenant", SERVICES, Shared(bus))
        lost = asyncio.Event()
        continuity = Continuity(bus, lambda: mirror.newest, lost.set)
        async with running(mirror.run(), continuity.run()):
            await soon(mirror.listed.wait())
            await soon(continuity.intact.wait())
            continuity.doubt()
            await soon(continuity.intact.wait())
            assert not lost.is_set()
            await bus.purge(streams.OBJECTS, subjects.listed("tenant", SERVICES.id))
            continuity.doubt()
            await soon(lost.wait())


async def test_a_stream_made_anew_is_noticed_though_doubted_again_meanwhile(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await streams.ensure(bus)
    lost = asyncio.Event()
    continuity = Continuity(bus, lambda: None, lost.set)
    async with running(continuity.run()):
        await soon(continuity.intact.wait())
        await bus.api(f"STREAM.DELETE.{streams.OBJECTS}")
        await streams.ensure(bus)
        api, again = bus.api, iter([True])

        async def doubting(*asked: Any, **more: Any) -> dict[str, Any]:
            answer = await api(*asked, **more)
            if next(again, False):
                continuity.doubt()
            return answer

        monkeypatch.setattr(bus, "api", doubting)
        continuity.doubt()
        await soon(continuity.intact.wait())
        assert lost.is_set()


async def test_whoever_is_superseded_doubts_the_bus(bus: Bus, apis: ApiServers, tmp_path: Path) -> None:
    await streams.ensure(bus)
    doubted = asyncio.Event()
    files.write_private(tmp_path / "tenant", apis.kubeconfig("tenant"))
    async with kube.from_file(tmp_path / "tenant") as opened:
        mirror = Mirror(bus, opened, "tenant", SERVICES, Shared(bus, doubted.set))
        mirroring = asyncio.create_task(mirror.run())
        await soon(mirror.listed.wait())
        await bus.publish(subjects.seen(ObjectRef("tenant", SERVICES.id, "default", "web")), b"another's")
        apis.put("tenant", SERVICES, {"metadata": {"namespace": "default", "name": "web"}})
        with pytest.raises(Superseded):
            await soon(mirroring)
    assert doubted.is_set()
