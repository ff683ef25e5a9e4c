"""Containerd on a machine that is busy: a `ctr` that does not end in time."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

import pytest

from sandbox.nodes import nodechildren
from sandbox.nodes.addresses import Plan
from sandbox.nodes.nodefiles import Place
from sandbox.restarter import Restarter
from windowbox.errors import Unreachable

_CTR = """#!/bin/sh
case "$*" in
    *" images import "*) test -e {output} || {{ touch {output}; exec sleep 600; }}
esac
"""
"""Its first import does not end."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    ctr = tmp_path / "bin" / "ctr"
    ctr.parent.mkdir()
    ctr.write_text(_CTR.format(output=tmp_path / "asked"))
    ctr.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ctr.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(nodechildren, "_IMPORT_PATIENCE", 1)
    plan = Plan(IPv4Network("10.0.0.0/16"), IPv6Network("fd00::/48"), ("node-1",))
    return Place(plan.nodes[0], "node-1", tmp_path, tmp_path, tmp_path, tmp_path)


async def test_an_import_that_does_not_end_is_tried_again(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child = nodechildren.containerd(place, lambda: [tmp_path / "image.tar"])
    runs = dataclasses.replace(child, argv=["sleep", "600"], before=None, held=None, inner=False)
    restarter = Restarter(runs, tmp_path / "log", lambda: None)
    running = asyncio.create_task(restarter.run())
    restarter.start()
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(60):
            await restarter.ready()
    assert not running.done()
    assert restarter.state.restarts == 0
    assert "has not ended within 1 s; trying again" in caplog.text
    await restarter.stop()
    running.cancel()


def test_a_timed_out_import_explains_the_remedy(place: Place, tmp_path: Path) -> None:
    child = nodechildren.containerd(place, lambda: [tmp_path / "image.tar"])
    assert child.then
    with pytest.raises(Unreachable, match="end what else uses the CPUs and the disk"):
        child.then()
