"""The demo's load balancer and Bastion, on real nodes: what it shows is what happens."""

from __future__ import annotations

import re

import pytest

from commands.demo import demo, showbalancer, showkinds
from commands.demo.stage import Scene
from sandbox import state as states
from sandbox.doctor import machine
from sandbox.nodes import sshimage
from tests.support.worldwithnodes import NodeWorld


def shown(nodes: NodeWorld, capsys: pytest.CaptureFixture[str]) -> str:
    state = states.read(nodes.sandbox.folder)
    assert state
    showbalancer.show(Scene(nodes.sandbox.folder, state))
    return capsys.readouterr().out


def warnings(nodes: NodeWorld) -> list[str]:
    """What `windowbox doctor` does not find right, once the node that had no power is complete again."""
    for name in nodes.sandbox.names:
        nodes.call(nodes.sandbox.ready(name))
    found = machine.examine_sandbox(nodes.sandbox.folder)
    return [f"{one.what}: {one.said}" for one in found if one.verdict != "ok"]


def test_the_demo_loses_no_connection_and_repeats(
    nodes: NodeWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    first = shown(nodes, capsys)
    assert warnings(nodes) == []
    second = shown(nodes, capsys)
    assert "in its status after" in first
    assert "had its address already" in second
    for said in (first, second):
        assert "node-2 without power: " in said
        assert "node-2 is back" in said
        assert "port 81 added under traffic" in said
        assert re.findall(r"connections made, (\d+) failed", said) == ["0", "0"]
        assert "0 broke" in said
        assert len(re.findall(r"answered by echo-", said)) == 3


def test_a_bastion_speaks_ssh_and_goes_without_a_trace(
    nodes: NodeWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    if not sshimage.found():
        pytest.skip("sshd is not on this machine: install openssh-server")
    state = states.read(nodes.sandbox.folder)
    assert state
    showkinds.show_owners(Scene(nodes.sandbox.folder, state))
    said = capsys.readouterr().out
    assert "its SSH server answers SSH-2.0-OpenSSH" in said
    assert "Service bastion-one deleted by hand: back after" in said
    assert said.rstrip().endswith("nothing of it is left")


def test_where_nodes_cannot_run_one_is_told_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    demo.left_out(showbalancer.WITHOUT_NODES, "They need real nodes, and those need Linux, and root")
    said = capsys.readouterr().out
    assert said.startswith("\nLeft out: load balancers")
    assert "Linux, and root" in said
