"""What the demo shows of a Shoot, of load balancers and of a Bastion is what happens."""

from __future__ import annotations

import re

import pytest

from commands.demo import demo, showbalancer, showkinds, showshoot
from commands.demo.stage import Scene
from sandbox import state as states
from sandbox.doctor import machine
from sandbox.nodes import sshimage
from sandbox.shoots.creation import Sandbox
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


@pytest.mark.long  # its beginning: tests/host/commands; what clients notice: tests/host/traffic
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


@pytest.mark.long  # tests/host/traffic/test_bastion.py
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


@pytest.mark.long  # its steps: test_shoot.py, and more of them
@pytest.mark.slow
def test_the_demo_replaces_machines_and_goes_without_a_trace(
    sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    with showshoot.making(sandbox, machines=1) as shoot:
        shoot.begin()
        shoot.wait_for_image()
        assert capsys.readouterr().out == ""
        showshoot.show(Scene(sandbox.folder, sandbox.state), shoot)
    said = capsys.readouterr().out
    assert len(re.findall(r"node machine-shoot--local--demo-\S+ is Ready", said)) == 1
    assert "1 machines replaced by those of another image" in said
    assert re.search(r"\d+ connections made", said)
    assert said.rstrip().endswith("nothing of it is left")


@pytest.mark.parametrize("left_out", [showbalancer.WITHOUT_NODES, showshoot.WITHOUT_NODES])
def test_without_nodes_the_demo_names_omitted_parts(
    capsys: pytest.CaptureFixture[str], left_out: str
) -> None:
    demo.left_out(left_out, "They need real nodes, and those need Linux, and root")
    said = capsys.readouterr().out
    assert said.startswith(f"\nLeft out: {left_out[:14]}")
    assert "Linux, and root" in said
