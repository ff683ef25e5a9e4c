"""Envoys of a launcher, which outlive the edge with its Pod."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.envoy.clients import greeting, talk
from tests.servers.envoy.nodes import Node
from tests.servers.envoy.test_serving import PORT, listener
from tests.servers.envoy.world import balancer
from tests.support import envoyprogram
from tests.support.running import eventually, running, soon
from windowbox.errors import Refused, Unreachable
from workers.loadbalancer.envoy import admin, launcher, process, protobuf, replacing
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.edge import Edge
from workers.loadbalancer.envoy.launcher import Launched, Launcher
from workers.loadbalancer.envoy.process import Process, Processes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "envoys"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return envoyprogram.envoy(tmp_path)


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """An Envoy that never answers."""
    program = tmp_path / "hanging"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o700)
    return program


async def test_connections_outlive_the_edge(folder: Path, program: Path, address: Callable[[], str]) -> None:
    node, place = await Node("n1", address()).start(), address()
    one = balancer(listener(place, [node]))
    try:
        async with Launcher(folder, program=program).serving():
            first = Edge(Launched(folder))
            async with running(first.keep()):
                await first.write([one])
                assert [s.problems async for s in first.wait_applied([one])] == [{}]
            async with talk(place, PORT) as before:
                successor = Edge(Launched(folder))
                async with running(successor.keep()):
                    assert await soon(successor.write([one])) is False
                    assert not await successor.outdated()
                    await successor.replace()
                    assert await greeting(place, PORT) == "n1"
                    assert await before.echo()
                assert await before.echo()
            assert await Launched(folder).names() == ["edge"]
        assert await Processes(folder, program=program).names() == []
    finally:
        await node.stop()


async def test_what_was_served_is_back_after_an_envoy_and_after_the_launcher(
    folder: Path, program: Path, address: Callable[[], str]
) -> None:
    node, place = await Node("n1", address()).start(), address()
    one = balancer(listener(place, [node]))
    edge = Edge(Launched(folder))

    try:
        async with running(edge.keep()):
            async with Launcher(folder, program=program).serving():
                await soon(edge.write([one]))
                await eventually(lambda: _serves(place))
                (envoy,) = await Processes(folder, program=program).found("edge")
                os.kill(envoy.pid, signal.SIGKILL)
                await soon(envoy.ended())
                await eventually(lambda: _serves(place))
            assert not await _serves(place)
            with pytest.raises(Unreachable):
                await Launched(folder).names()
            async with Launcher(folder, program=program).serving():
                await eventually(lambda: _serves(place))
    finally:
        await node.stop()


async def test_the_edge_outlives_a_launcher_that_ends_while_an_envoy_drains(
    folder: Path, program: Path, address: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="windowbox")
    node, place = await Node("n1", address()).start(), address()
    edge = Edge(Launched(folder))

    async def listens_no_more() -> bool:
        old, *_ = await Launched(folder).found("edge")
        return (await admin.standing(old)).listeners == protobuf.version(*replacing.NO_LISTENERS.values())

    async def was_asked_to_end() -> bool:
        return "generation 1 does not end" in caplog.text

    try:
        async with running(edge.keep()):
            async with contextlib.AsyncExitStack() as client:
                async with Launcher(folder, program=program).serving():
                    await soon(edge.write([balancer(listener(place, [node]))]))
                    await eventually(lambda: _serves(place))
                    await client.enter_async_context(talk(place, PORT))
                    await edge.replace()
                    await eventually(listens_no_more)
                await eventually(was_asked_to_end)
            async with Launcher(folder, program=program).serving():
                await eventually(lambda: _serves(place))
    finally:
        await node.stop()


async def test_a_replacement_is_given_up_though_the_launcher_is_away(folder: Path, hanging: Path) -> None:
    edge = Edge(Launched(folder))

    async def both_run() -> bool:
        return len(await Launched(folder).found("edge")) == 2

    async with running(edge.keep()):
        async with Launcher(folder, program=hanging).serving():
            replacing_it = asyncio.create_task(edge.replace())
            await eventually(both_run)
        replacing_it.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(replacing_it)


async def test_an_edge_without_its_launcher_says_what_to_do(
    folder: Path, program: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "_AWAY", 0.5)
    edge = Edge(Launched(folder))

    async def is_told() -> bool:
        return any(
            "delete the edge's Pod" in one.message for one in caplog.records if one.levelname == "ERROR"
        )

    async with running(edge.keep()):
        async with Launcher(folder, program=program).serving():
            await soon(edge.running.wait())
            caplog.clear()
        await eventually(is_told)


async def test_a_question_for_one_envoy_looks_at_no_other(
    folder: Path, hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_STARTING", 0.0)
    monkeypatch.setattr(launcher, "_WAIT", 0.05)
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    looked: list[str] = []

    async def has_usual_priority() -> bool:
        [started] = await Processes(folder, program=hanging).found("edge")
        return os.getpriority(os.PRIO_PROCESS, started.pid) == usual

    async def names(_: Processes) -> list[str]:
        looked.append("at all")
        return []

    async with Launcher(folder, program=hanging).serving():
        envoy = await Launched(folder).start(Order(name="edge", generation=1, files={}))
        await eventually(has_usual_priority)
        with monkeypatch.context() as patched:
            patched.setattr(Processes, "names", names)
            patched.setattr(Process, "restore_priority_later", lambda _: looked.append("at priorities"))
            ended = asyncio.create_task(envoy.ended())
            await envoy.end()
            await soon(ended)
    assert looked == []


async def test_each_launcher_has_a_folder_of_its_own(folder: Path, program: Path) -> None:
    async with Launcher(folder, program=program).serving():
        assert (folder / "launcher.lock").stat().st_mode & 0o777 == 0o600
        with pytest.raises(Refused, match="another launcher"):
            async with Launcher(folder, program=program).serving():
                pass


async def _serves(place: str) -> bool:
    try:
        return await greeting(place, PORT) == "n1"
    except OSError:
        return False
