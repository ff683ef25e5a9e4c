"""The demo's load balancer and Bastion, on real nodes: what it shows is what happens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from tests.support import worldwithnodes
from tests.support.worldwithnodes import NodeWorld
from windowbox.commands.balancers import demo
from windowbox.commands.kinds import demo as kinds
from windowbox.sandbox import state as states
from windowbox.sandbox.nodes import sshimage


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeWorld]:
    yield from worldwithnodes.fixture(tmp_path_factory, nodes=2, watchers=1, workers=1, patchers=1)


def shown(world: NodeWorld, capsys: pytest.CaptureFixture[str]) -> str:
    state = states.read(world.sandbox.folder)
    assert state
    asyncio.run(demo.show(world.kubeconfig, state))
    return capsys.readouterr().out


def test_the_demo_loses_no_connection_and_repeats(
    world: NodeWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = shown(world, capsys), shown(world, capsys)
    assert "in its status after" in first
    assert "had its address already" in second
    for said in (first, second):
        assert "node-2 loses its power" in said
        assert "node-2 is back" in said
        assert "port 81 added under traffic" in said
        assert re.findall(r"connections made, (\d+) failed", said) == ["0", "0"]
        assert "0 broke" in said
        assert len(re.findall(r"answered by echo-", said)) == 3


def test_a_bastion_speaks_ssh_and_goes_without_a_trace(
    world: NodeWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    if not sshimage.found():
        pytest.skip("sshd is not on this machine: install openssh-server")
    state = states.read(world.sandbox.folder)
    assert state
    asyncio.run(kinds.show(world.kubeconfig, world.sandbox.folder, state))
    said = capsys.readouterr().out
    assert "its first words: SSH-2.0-OpenSSH" in said
    assert "Service bastion-one deleted by hand: back after" in said
    assert said.rstrip().endswith("nothing of it is left")


def test_where_nodes_cannot_run_one_is_told_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    demo.left_out("They need real nodes, and those need Linux, and root")
    said = capsys.readouterr().out
    assert said.startswith("\nLeft out: load balancers")
    assert "Linux, and root" in said
