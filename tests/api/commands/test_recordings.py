"""`windowbox record` and `windowbox replay`, on real servers and without any."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bus import recordings
from commands.cli import cli
from tests.api.commands.operated import Operated
from tests.e2e.client import failed
from tests.support.samples import DEMO
from workers.core.lifecycle.actuators import Run
from workers.dns.record.actuator import DNSRecordActuator


def test_recorded_runs_are_replayed_without_differences(operated: Operated, tmp_path: Path) -> None:
    space = operated.space()
    good = space.record(space.name(), ["10.0.0.1"])
    good.until_ready()
    good.until_ready(good.ask("reconcile", ttl=60))
    space.record(space.name(), ["nonsense"]).until(failed)
    good.delete()
    good.until_gone()

    day = tmp_path / "day.wbx"
    operated.windowbox("record", "--since", "1h", "-o", str(day))
    notes = {run.note for run in recordings.read(day).runs if space.namespace in run.key}
    assert {"Create", "Reconcile", "Delete"} <= notes
    assert "none with differences" in operated.windowbox("replay", str(day))
    # It holds no key, and no name of a machine.
    content = gzip.decompress(day.read_bytes()).decode()
    assert operated.named.key
    assert operated.named.key.secret not in content
    assert operated.named.address not in content
    assert {run.process for run in recordings.read(day).runs} == {"process 1"}


@pytest.mark.parametrize("since", ["yesterday", "5", "1h30"])
def test_an_invalid_duration_is_explained(since: str, tmp_path: Path) -> None:
    shown = CliRunner().invoke(cli, ["record", "--since", since, "-o", str(tmp_path / "day.wbx")])
    assert shown.exit_code == 2
    assert "write 90s, 15m, 1h30m or 1d" in shown.output


def replayed(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["replay", str(DEMO), *arguments])


def test_a_replay_without_differences_succeeds() -> None:
    shown = replayed()
    assert shown.exit_code == 0
    assert "runs replayed, none with differences" in shown.output
    assert json.loads(replayed("-o", "json").output)["differences"] == []


async def forget(self: DNSRecordActuator, run: Run) -> None: ...


def test_with_differences_it_shows_them_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DNSRecordActuator, "delete", forget)
    shown = replayed()
    assert shown.exit_code == 1
    assert "\ndnsrecords demo/" in shown.output
    assert '  - dns {"do": "delete", "name": "' in shown.output

    [first, *_] = json.loads(replayed("-o", "json").output)["differences"]
    then, now = first["recorded"]["effects"], first["now"]["effects"]
    assert [effect["door"] for effect in then if effect not in now] == ["dns"]
    assert first["trace"]
