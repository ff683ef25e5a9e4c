"""What the demo shows of a Shoot is what happens."""

from __future__ import annotations

import re

import pytest

from commands.demo import demo, showshoot
from commands.demo.stage import Scene
from sandbox.shoots.creation import Sandbox


@pytest.mark.slow
def test_the_demo_replaces_machines_and_goes_without_a_trace(
    sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    showshoot.show(Scene(sandbox.folder, sandbox.state), sandbox, machines=1)
    said = capsys.readouterr().out
    assert len(re.findall(r"node machine-shoot--local--demo-\S+ is Ready", said)) == 1
    assert "1 machines replaced by those of another image" in said
    assert re.search(r"\d+ connections made", said)
    assert said.rstrip().endswith("nothing of it is left")


def test_where_nodes_cannot_run_one_is_told_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    demo.left_out(showshoot.WITHOUT_NODES, "They need real nodes")
    assert capsys.readouterr().out.startswith("\nLeft out: a shoot with machines")
