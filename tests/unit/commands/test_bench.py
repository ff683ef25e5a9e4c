"""`windowbox bench` where there are no benchmarks."""

from __future__ import annotations

import importlib
import sys

import click
import pytest
from click.testing import CliRunner

from commands import bench as command


def test_without_a_checkout_bench_says_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command.bench.callback
    # As in a wheel, which does not contain the module with the commands.
    monkeypatch.setitem(sys.modules, command.bench.callback.__module__, None)
    try:
        result = CliRunner().invoke(importlib.reload(command).bench, ["bus", "-n", "1"])
    finally:
        monkeypatch.undo()
        importlib.reload(command)
    assert result.exit_code == 1
    assert "runs from a checkout of the repository" in result.output
    assert isinstance(command.bench, click.Group)
