"""An Envoy keeps serving through crashes, successors and replacements, as our child or a launcher's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.servers.envoy.clients import PORT, counting, greeting, serves, talk
from tests.servers.envoy.world import World, balancer, listener, problems, tracked
from tests.support import envoyprogram
from tests.support.rules import rule
from tests.support.running import eventually, running, soon
from windowbox.errors import Refused, Unreachable
from workers.loadbalancer.envoy import bootstrap, launched
from workers.loadbalancer.envoy.attachments import Order
from workers.loadbalancer.envoy.discovery import Discovery
from workers.loadbalancer.envoy.edge import Edge
from workers.loadbalancer.envoy.launched import Launched
from workers.loadbalancer.envoy.process import Processes
from workers.loadbalancer.launcher import launcher, programs
from workers.loadbalancer.launcher.launcher import Launcher
from workers.loadbalancer.launcher.programs import Program, Programs


@rule("LB-11-9")
async def test_each_start_of_envoy_is_reported(bare: World) -> None:
    starts: asyncio.Queue[None] = asyncio.Queue()
    edge = Edge(bare.attachment, Discovery(), on_start=lambda: starts.put_nowait(None))
    async with running(edge.keep()):
        await soon(starts.get())
        await (await bare.envoy()).end()
        await soon(starts.get())
        await soon(edge.running.wait())


async def test_a_successor_takes_over_the_running_envoy_and_sends_nothing(
    bare: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes, place = await bare.nodes(1), bare.address()
    one = balancer(listener(place, nodes), listener(place, nodes, "UDP"))
    async with bare.keeping():
        await bare.serve(*one.listeners)
    envoy = await bare.envoy()
    caplog.set_level("DEBUG")
    async with (
        talk(place) as before,
        bare.keeping(Processes(tmp_path / "envoys", program=tmp_path / "envoy")) as successor,
    ):
        await soon(successor.write(tracked([one])))
        assert await problems(successor, one) == {}
        assert sent(caplog) == []
        assert not await successor.outdated()
        (tmp_path / "envoy").rename(tmp_path / "envoy-of-yesterday")
        shutil.copy(tmp_path / "envoy-of-yesterday", tmp_path / "envoy")
        assert await successor.outdated()
        assert (await bare.envoy()).pid == envoy.pid
        assert await before.echo()
        await soon(successor.write(tracked([])))
        assert await successor.wait_accepted()
        assert [s async for s in successor.wait_applied([])] == []
        assert not await serves(place)


async def test_after_both_have_died_a_new_envoy_waits_for_its_edge(bare: World) -> None:
    nodes, place = await bare.nodes(1), bare.address()
    async with bare.keeping():
        await bare.serve(one := listener(place, nodes))
    await bare.end_all()
    async with bare.keeping() as successor:
        assert not await serves(place)
        await successor.write(tracked([balancer(one)]))
        assert await problems(successor, balancer(one)) == {}
        assert await greeting(place) == "n1"


@rule("LB-15-12", "LB-15-11")
async def test_a_replacement_refuses_no_connection_and_cuts_none(world: World) -> None:
    nodes, address = await world.nodes(2), world.address()
    await world.serve(one := listener(address, nodes))
    old = await world.envoy()

    async with counting(address) as count:
        async with talk(address) as before:
            await count.further(100)
            await soon(world.edge.replace())
            await count.further(200)
            assert await before.echo()
            assert await world.generations() == [1, 2]
            # An added listener is served by the new one.
            assert await world.serve(one, listener(address, nodes, port=PORT + 1)) == {}
            assert await greeting(address, PORT + 1)
        await soon(old.ended())
        await count.further(50)

    assert count.failed == []
    assert await world.generations() == [2]


@rule("LB-15-12")
async def test_a_successor_completes_a_replacement(bare: World) -> None:
    nodes, place = await bare.nodes(1), bare.address()
    async with bare.keeping() as first:
        await bare.serve(one := listener(place, nodes))
        async with talk(place):
            await first.replace()
            assert await bare.generations() == [1, 2]
    async with bare.keeping() as successor:
        await soon(successor.write(tracked([balancer(one)])))
        await eventually(lambda: bare.are(2))
        assert await greeting(place) == "n1"


async def test_an_abandoned_replacement_is_given_up(bare: World, caplog: pytest.LogCaptureFixture) -> None:
    nodes, place = await bare.nodes(1), bare.address()
    async with bare.keeping():
        await bare.serve(listener(place, nodes))
    files = {bootstrap.BOOTSTRAP: bootstrap.bootstrap("edge/2", ".", bare.attachment.discovery)}
    await bare.attachment.start(Order(name="edge", generation=2, files=files))
    async with talk(place) as before, bare.keeping() as successor:
        assert await bare.generations() == [1]
        assert await greeting(place) == "n1"
        assert await before.echo()
        assert (await successor.about()).generation == 1
    assert "Envoy has ended" not in caplog.text  # the one that serves has not


async def test_an_envoy_that_does_not_start_is_retried(tmp_path: Path, bare: World) -> None:
    broken = script(tmp_path / "broken", "exit 1")
    attachment, discovery = Processes(tmp_path / "envoys", program=broken), Discovery()
    edge = Edge(attachment, discovery)
    one = balancer(listener(bare.address(), []))
    async with discovery.serving(attachment.discovery_folder), running(edge.keep()):
        await soon(edge.write(tracked([one])))
        assert await problems(edge, one, 0.3) == {"8080/TCP": "Envoy is being started"}
        broken.unlink()
        broken.symlink_to(tmp_path / "envoy")
        assert await problems(edge, one, 60) == {}


@rule("LB-15-11")
async def test_two_edges_run_side_by_side(bare: World) -> None:
    nodes, places = await bare.nodes(1), [bare.address(), bare.address()]
    discovery = Discovery()
    both = [Edge(bare.attachment, discovery, name) for name in ("one", "two")]
    folder = bare.attachment.discovery_folder
    async with discovery.serving(folder), running(*(edge.keep() for edge in both)):
        for edge, place in zip(both, places, strict=True):
            await edge.write(tracked([wanted := balancer(listener(place, nodes))]))
            assert await problems(edge, wanted) == {}
        assert await bare.attachment.names() == ["one", "two"]
        assert [await greeting(place) for place in places] == ["n1", "n1"]
    await bare.end_all()
    assert await bare.attachment.names() == []


@rule("LB-15-1")
async def test_files_are_replaced_whole(world: World, tmp_path: Path) -> None:
    place = tmp_path / "envoys" / "edge" / "1"
    await world.serve()
    before = (place / bootstrap.OWNERS).stat().st_ino
    await (await world.envoy()).write({bootstrap.OWNERS: b"{}"})
    assert (place / bootstrap.OWNERS).stat().st_ino != before
    assert sorted(f.name for f in place.iterdir() if f.name.startswith(".")) == []
    assert (place.stat().st_mode & 0o777) == 0o700


async def test_an_envoy_goes_before_others_while_it_starts(
    bare: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {bootstrap.BOOTSTRAP: bootstrap.bootstrap("edge/1", ".", bare.attachment.discovery)}
    envoy = await bare.attachment.start(Order(name="edge", generation=1, files=files))
    usual = os.getpriority(os.PRIO_PROCESS, 0)

    def niceness() -> set[int]:
        """Of all threads."""
        return {
            os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir(f"/proc/{envoy.pid}/task")
        }

    assert niceness() == {usual - 10 if _may_set_priorities() else usual}
    monkeypatch.setattr(programs, "_STARTING", 0.01)
    ending = asyncio.create_task(envoy.ended())
    await eventually(lambda: niceness() == {usual})
    await envoy.end()
    await soon(ending)


def _may_set_priorities() -> bool:
    rights = re.search(r"CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text())
    return bool(rights and int(rights[1], 16) >> 23 & 1)


async def test_a_reused_pid_is_not_ours(bare: World, tmp_path: Path) -> None:
    place = tmp_path / "envoys" / "edge" / "1"
    place.mkdir(parents=True)
    (place / "envoy.pid").write_text(f"{os.getpid()}\n")
    assert await bare.attachment.found("edge") == []


async def test_the_admin_socket_is_found_however_long_its_folder_is(bare: World, tmp_path: Path) -> None:
    bare.attachment = Processes(tmp_path / ("x" * 90), program=tmp_path / "envoy")
    async with bare.keeping():
        assert await bare.serve(listener(bare.address(), [])) == {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a launcher runs Envoys."""
    return tmp_path / "envoys"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return envoyprogram.envoy(tmp_path)


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """An Envoy that never answers."""
    return script(tmp_path / "hanging", "exec sleep 600")


async def test_connections_outlive_the_edge(folder: Path, program: Path, bare: World) -> None:
    nodes, place = await bare.nodes(1), bare.address()
    async with Launcher(folder, program=program).serving():
        async with bare.keeping(Launched(folder)):
            one = listener(place, nodes)
            assert await bare.serve(one) == {}
        async with talk(place) as before:
            async with bare.keeping(Launched(folder)) as successor:
                await soon(successor.write(tracked([balancer(one)])))
                assert not await successor.outdated()
                await successor.replace()
                assert await greeting(place) == "n1"
                assert await before.echo()
            assert await before.echo()
        assert await Launched(folder).names() == ["edge"]
    assert await bare.attachment.names() == []


async def test_listeners_return_after_envoy_or_its_launcher_restarts(
    folder: Path, program: Path, bare: World
) -> None:
    nodes, place = await bare.nodes(1), bare.address()
    edge, serving = before(folder)
    async with serving, running(edge.keep()):
        async with Launcher(folder, program=program).serving():
            await soon(edge.write(tracked([balancer(listener(place, nodes))])))
            await eventually(lambda: serves(place))
            envoy = await bare.envoy()
            os.kill(envoy.pid, signal.SIGKILL)
            await soon(envoy.ended())
            await eventually(lambda: serves(place))
        assert not await serves(place)
        with pytest.raises(Unreachable):
            await Launched(folder).names()
        async with Launcher(folder, program=program).serving():
            await eventually(lambda: serves(place))


async def test_the_edge_outlives_a_launcher_that_ends_while_an_envoy_drains(
    folder: Path, program: Path, bare: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="windowbox")
    nodes, place = await bare.nodes(1), bare.address()
    edge, serving = before(folder)

    async def listens_no_more() -> bool:
        old, *_ = await Launched(folder).found("edge")
        return b"total_listeners_active: 0" in await old.ask("/stats?filter=total_listeners_active")

    async with serving, running(edge.keep()):
        async with contextlib.AsyncExitStack() as client:
            async with Launcher(folder, program=program).serving():
                await soon(edge.write(tracked([balancer(listener(place, nodes))])))
                await eventually(lambda: serves(place))
                await client.enter_async_context(talk(place))
                await edge.replace()
                await eventually(listens_no_more)
            await eventually(lambda: "generation 1 does not end" in caplog.text)
        async with Launcher(folder, program=program).serving():
            await eventually(lambda: serves(place))


async def test_a_replacement_is_given_up_though_the_launcher_is_away(folder: Path, hanging: Path) -> None:
    edge, serving = before(folder)

    async def both_run() -> bool:
        return len(await Launched(folder).found("edge")) == 2

    async with serving, running(edge.keep()):
        async with Launcher(folder, program=hanging).serving():
            await edge.write(tracked([]))
            replacing_it = asyncio.create_task(edge.replace())
            await eventually(both_run)
        replacing_it.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(replacing_it)


async def test_an_edge_without_its_launcher_logs_the_remedy(
    folder: Path, program: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launched, "_AWAY", 0.5)
    caplog.set_level("ERROR")
    edge, serving = before(folder)
    async with serving, running(edge.keep()):
        async with Launcher(folder, program=program).serving():
            await soon(edge.running.wait())
            caplog.clear()
        await eventually(lambda: "delete the edge's Pod" in caplog.text)


async def test_a_request_about_one_envoy_reads_no_other(
    folder: Path, hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_STARTING", 0.0)
    monkeypatch.setattr(launcher, "_WAIT", 0.05)
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    looked: list[str] = []

    async def has_usual_priority() -> bool:
        found = await Processes(folder, program=hanging).found("edge")
        return [os.getpriority(os.PRIO_PROCESS, started.pid) for started in found] == [usual]

    def names(_: Programs) -> list[str]:
        looked.append("at all")
        return []

    async with Launcher(folder, program=hanging).serving():
        envoy = await Launched(folder).start(Order(name="edge", generation=1, files={}))
        await eventually(has_usual_priority)
        with monkeypatch.context() as patched:
            patched.setattr(Programs, "names", names)
            patched.setattr(Program, "restore_priority_later", lambda _: looked.append("at priorities"))
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


def before(folder: Path) -> tuple[Edge, AbstractAsyncContextManager[None]]:
    """An edge before Envoys of a launcher, and its discovery."""
    attachment, discovery = Launched(folder), Discovery()
    return Edge(attachment, discovery), discovery.serving(attachment.discovery_folder)


def sent(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int, str]]:
    """How many resources were sent and removed, and of which kind."""
    found = re.findall(r"(\d+) resources sent, (\d+) removed: [a-z0-9.]*\.(\w+)", caplog.text)
    return [(int(added), int(removed), kind) for added, removed, kind in found]


def script(path: Path, text: str) -> Path:
    """A program in the place of Envoy."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path
