"""The Envoy that is always there: through crashes, successors and replacements."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.envoy.clients import counting, datagram, greeting, talk
from tests.servers.envoy.conftest import end_all
from tests.servers.envoy.nodes import Node
from tests.servers.envoy.test_serving import PORT, listener
from tests.servers.envoy.world import World, balancer
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from workers.loadbalancer.envoy import bootstrap, protobuf, replacing, resources
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.edge import Edge
from workers.loadbalancer.envoy.process import Process, Processes


@rule("LB-11-9")
async def test_a_killed_envoy_is_back_with_what_it_served(world: World, attachment: Processes) -> None:
    nodes, address = await world.nodes(2), world.address()
    one = balancer(listener(address, nodes), listener(address, nodes, "UDP"))
    await world.edge.write([one])
    [s async for s in world.edge.wait_applied([one])]
    (envoy,) = await attachment.found("edge")
    assert isinstance(envoy, Process)

    os.kill(envoy.pid, signal.SIGKILL)
    await soon(envoy.ended())
    told = [s async for s in world.edge.wait_applied([one], patience=60)]

    assert told[0].problems == {}
    assert await greeting(address, PORT)
    assert await datagram(address, PORT)
    (after,) = await attachment.found("edge")
    assert isinstance(after, Process)
    assert after.pid != envoy.pid


@rule("LB-11-9")
async def test_the_owner_hears_of_each_start(attachment: Processes) -> None:
    starts: asyncio.Queue[None] = asyncio.Queue()
    edge = Edge(attachment, on_start=lambda: starts.put_nowait(None))
    try:
        async with running(edge.keep()):
            await soon(starts.get())
            (envoy,) = await attachment.found("edge")
            await envoy.end()
            await soon(starts.get())
            await soon(edge.running.wait())
    finally:
        await end_all(attachment)


async def test_a_successor_takes_over_the_running_envoy_and_writes_nothing(
    attachment: Processes, address: Callable[[], str], tmp_path: Path
) -> None:
    node, place = await Node("n1", address()).start(), address()
    one = balancer(listener(place, [node]), listener(place, [node], "UDP"))
    try:
        first = Edge(attachment)
        async with running(first.keep()):
            await first.write([one])
            [s async for s in first.wait_applied([one])]
        (envoy,) = await attachment.found("edge")
        async with talk(place, PORT) as before:
            successor = Edge(Processes(tmp_path / "envoys", program=tmp_path / "envoy"))
            async with running(successor.keep()):
                assert await soon(successor.write([one])) is False
                assert [s.problems async for s in successor.wait_applied([one])] == [{}]
                assert not await successor.outdated()
                (tmp_path / "envoy").rename(tmp_path / "envoy-of-yesterday")
                shutil.copy(tmp_path / "envoy-of-yesterday", tmp_path / "envoy")
                assert await successor.outdated()
                (found,) = await attachment.found("edge")
                assert isinstance(found, Process)
                assert isinstance(envoy, Process)
                assert found.pid == envoy.pid
                assert await before.echo()
                assert await soon(successor.write([])) is True
                assert [s async for s in successor.wait_applied([])] == []
    finally:
        await node.stop()
        await end_all(attachment)


async def test_after_both_have_died_the_last_files_are_served_at_once(
    attachment: Processes, address: Callable[[], str]
) -> None:
    node, place = await Node("n1", address()).start(), address()
    one = balancer(listener(place, [node]))
    try:
        first = Edge(attachment)
        async with running(first.keep()):
            await first.write([one])
            [s async for s in first.wait_applied([one])]
        await end_all(attachment)
        with_nobody_to_tell_it = Edge(attachment)
        async with running(with_nobody_to_tell_it.keep()):
            assert [s.problems async for s in with_nobody_to_tell_it.wait_applied([one], 10)] == [{}]
            assert await greeting(place, PORT) == "n1"
    finally:
        await node.stop()
        await end_all(attachment)


@rule("LB-15-12", "LB-15-11")
async def test_a_replacement_refuses_no_connection_and_cuts_none(world: World, attachment: Processes) -> None:
    nodes, address = await world.nodes(2), world.address()
    one = balancer(listener(address, nodes))
    await world.edge.write([one])
    [s async for s in world.edge.wait_applied([one])]
    (old,) = await attachment.found("edge")

    async with counting(address, PORT) as count:
        async with talk(address, PORT) as before:
            await count.further(100)
            await soon(world.edge.replace())
            await count.further(200)
            assert await before.echo()
            assert [e.generation for e in await attachment.found("edge")] == [1, 2]
            more = balancer(listener(address, nodes), listener(address, nodes, port=PORT + 1))
            await world.edge.write([more])  # goes to the new one
            assert [s.problems async for s in world.edge.wait_applied([more])] == [{}]
            assert await greeting(address, PORT + 1)
        await soon(old.ended())
        await count.further(50)

    assert count.failed == []
    assert [e.generation for e in await attachment.found("edge")] == [2]


@rule("LB-15-12")
async def test_a_successor_ends_what_was_being_replaced(
    attachment: Processes, address: Callable[[], str]
) -> None:
    node, place = await Node("n1", address()).start(), address()
    one = balancer(listener(place, [node]))
    try:
        first = Edge(attachment)
        async with running(first.keep()):
            await first.write([one])
            [s async for s in first.wait_applied([one])]
            async with talk(place, PORT):
                await first.replace()
                assert len(await attachment.found("edge")) == 2
        successor = Edge(attachment)
        async with running(successor.keep()):

            async def alone() -> bool:
                return [e.generation for e in await attachment.found("edge")] == [2]

            await eventually(alone)
            assert await soon(successor.write([one])) is False
            assert await greeting(place, PORT) == "n1"
    finally:
        await node.stop()
        await end_all(attachment)


async def test_an_envoy_that_does_not_start_is_tried_again(
    tmp_path: Path, attachment: Processes, address: Callable[[], str]
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o700)
    edge = Edge(Processes(tmp_path / "envoys", program=broken))
    one = balancer(listener(address(), []))
    try:
        async with running(edge.keep()):
            await soon(edge.write([one]))
            told = [s async for s in edge.wait_applied([one], patience=0.3)]
            assert told[0].problems == {"8080/TCP": "Envoy is being started"}
            broken.unlink()
            broken.symlink_to(tmp_path / "envoy")
            assert [s.problems async for s in edge.wait_applied([one], patience=60)] == [{}]
    finally:
        await end_all(attachment)


@rule("LB-11-8")
async def test_where_no_more_files_can_be_watched_it_does_without(
    tmp_path: Path, attachment: Processes, address: Callable[[], str]
) -> None:
    poor = tmp_path / "poor"  # ends as Envoy does when it gets no inotify instance for a cluster's file
    poor.write_text(f'#!/bin/sh\n[ -z "$(ls | grep \'^eds_\')" ] && exec {tmp_path}/envoy "$@"\n')
    poor.chmod(0o700)
    node, place = await Node("n1", address()).start(), address()
    one = balancer(listener(place, [node], "UDP"))
    edge = Edge(Processes(tmp_path / "envoys", program=poor))
    try:
        async with running(edge.keep()):
            await soon(edge.write([one]))
            (envoy,) = await attachment.found("edge")
            await envoy.end()
            assert [s.problems async for s in edge.wait_applied([one], 20)] == [{}]
            assert await datagram(place, PORT)
            assert await edge.write([one]) is False
    finally:
        await node.stop()
        await end_all(attachment)


@rule("LB-15-11")
async def test_edges_stand_beside_each_other(
    tmp_path: Path, attachment: Processes, address: Callable[[], str]
) -> None:
    node = await Node("n1", address()).start()
    both = [Edge(attachment, name) for name in ("one", "two")]
    places = [address(), address()]
    try:
        async with running(*(edge.keep() for edge in both)):
            for edge, place in zip(both, places, strict=True):
                wanted = [balancer(listener(place, [node]))]
                await edge.write(wanted)
                assert [s.problems async for s in edge.wait_applied(wanted, 10)] == [{}]
            assert await attachment.names() == ["one", "two"]
            assert [await greeting(place, PORT) for place in places] == ["n1", "n1"]
    finally:
        await node.stop()
        for name in ("one", "two"):
            for envoy in await attachment.found(name):
                await envoy.end()
    assert await attachment.names() == []


@rule("LB-15-1")
async def test_files_are_replaced_whole(attachment: Processes, edge: Edge, tmp_path: Path) -> None:
    (envoy,) = await attachment.found("edge")
    place = tmp_path / "envoys" / "edge" / "1"
    before = (place / bootstrap.LISTENERS).stat().st_ino

    await envoy.write({bootstrap.LISTENERS: protobuf.response("x", b"")})

    assert (place / bootstrap.LISTENERS).stat().st_ino != before
    assert sorted(f.name for f in place.iterdir() if f.name.startswith(".")) == []
    assert (place.stat().st_mode & 0o777) == 0o700


async def test_an_envoy_goes_before_others_while_it_starts(
    attachment: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {bootstrap.BOOTSTRAP: bootstrap.bootstrap("."), **resources.NOTHING.files}
    envoy = await attachment.start(Order(name="edge", generation=1, files=files))
    assert isinstance(envoy, Process)
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        assert niceness(envoy.pid) == {usual - 10 if may_set_priorities() else usual}
        monkeypatch.setattr("workers.loadbalancer.envoy.process._STARTING", 0.01)
        ending = asyncio.create_task(envoy.ended())

        async def as_usual() -> bool:
            return niceness(envoy.pid) == {usual}

        await eventually(as_usual)
        await envoy.end()
        await soon(ending)
    finally:
        await end_all(attachment)


def niceness(pid: int) -> set[int]:
    """Of all threads."""
    return {os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir(f"/proc/{pid}/task")}


def may_set_priorities() -> bool:
    rights = re.search(r"CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text())
    return bool(rights and int(rights[1], 16) >> 23 & 1)


async def test_a_reused_pid_is_not_ours(attachment: Processes, tmp_path: Path) -> None:
    place = tmp_path / "envoys" / "edge" / "1"
    place.mkdir(parents=True)
    (place / "envoy.pid").write_text(f"{os.getpid()}\n")

    assert await attachment.found("edge") == []


async def test_the_admin_socket_is_found_however_long_its_folder_is(
    tmp_path: Path, attachment: Processes, address: Callable[[], str]
) -> None:
    place = address()
    deep = tmp_path / ("x" * 90)
    edge = Edge(Processes(deep, program=tmp_path / "envoy"))
    try:
        async with running(edge.keep()):
            one = balancer(listener(place, []))
            await soon(edge.write([one]))
            assert [s.problems async for s in edge.wait_applied([one], 10)] == [{}]
    finally:
        for envoy in await Processes(deep).found("edge"):
            await envoy.end()


async def test_a_replacement_that_nobody_lived_to_finish_is_given_up(
    attachment: Processes, address: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    node, place = await Node("n1", address()).start(), address()
    one = balancer(listener(place, [node]))
    try:
        first = Edge(attachment)
        async with running(first.keep()):
            await first.write([one])
            [s async for s in first.wait_applied([one])]
        files = {**await attachment.kept("edge"), **replacing.NO_LISTENERS}
        await attachment.start(Order(name="edge", generation=2, files=files))
        async with talk(place, PORT) as before:
            successor = Edge(attachment)
            async with running(successor.keep()):
                await soon(successor.running.wait())
                assert [e.generation for e in await attachment.found("edge")] == [1]
                assert await greeting(place, PORT) == "n1"
                assert await before.echo()
                assert (await successor.about()).generation == 1
        assert "Envoy has ended" not in caplog.text  # the one that serves has not
    finally:
        await node.stop()
        await end_all(attachment)
