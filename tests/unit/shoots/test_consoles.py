"""Console logs outlive their machines."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.shoots import consoles
from windowbox.errors import Missing

POD: dict[str, Any] = {
    "metadata": {"name": "machine-a", "namespace": "infra", "uid": "u1", "labels": {"app": "machine"}}
}
LOG = "2026-01-01T00:00:00Z stdout F init: machine boots\n2026-01-01T00:00:01Z stderr F userdata: a b c\n"


def written(logs: Path, number: int = 0, pod: str = "infra_machine-a_u1") -> Path:
    path = logs / pod / "node" / f"{number}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LOG)
    return path


def test_a_log_is_kept_after_its_pod(tmp_path: Path) -> None:
    log = written(tmp_path / "logs")
    consoles.keep(tmp_path / "kept", [tmp_path / "logs"], [POD])
    log.unlink()
    assert list(consoles.lines(tmp_path / "kept", "a")) == ["init: machine boots", "userdata: a b c"]


def test_each_boot_has_its_log(tmp_path: Path) -> None:
    for number in (0, 1):
        written(tmp_path / "logs", number)
        consoles.keep(tmp_path / "kept", [tmp_path / "logs"], [POD])
    assert len(list(consoles.lines(tmp_path / "kept", "machine-a"))) == 4


def test_a_restarted_machine_has_a_second_log(tmp_path: Path) -> None:
    """The nodes are made anew, and so the log has the name of the first."""
    for _ in range(2):
        written(tmp_path / "logs")
        consoles.keep(tmp_path / "kept", [tmp_path / "logs"], [POD])
        consoles.keep(tmp_path / "kept", [tmp_path / "logs"], [POD])
        shutil.rmtree(tmp_path / "logs")
    assert len(list(consoles.lines(tmp_path / "kept", "a"))) == 4


def test_other_pods_have_no_console(tmp_path: Path) -> None:
    written(tmp_path / "logs", pod="infra_bastion_u2")
    bastion = {"metadata": {"name": "bastion", "namespace": "infra", "uid": "u2"}}
    consoles.keep(tmp_path / "kept", [tmp_path / "logs"], [bastion])
    assert consoles.machines(tmp_path / "kept") == []


def test_an_unknown_machine_is_told_the_known_ones(tmp_path: Path) -> None:
    written(tmp_path / "logs")
    consoles.keep(tmp_path / "kept", [tmp_path / "logs"], [POD])
    with pytest.raises(Missing, match="machine-a"):
        list(consoles.lines(tmp_path / "kept", "../b"))


def test_logs_are_forgotten_after_a_day(tmp_path: Path) -> None:
    for name, age in (("old", 25 * 3600), ("new", 23 * 3600)):
        path = tmp_path / f"machine-{name}" / "u-0.log"
        path.parent.mkdir()
        path.write_text(LOG)
        os.utime(path, (time.time() - age, time.time() - age))
    consoles.forget_old(tmp_path)
    assert consoles.machines(tmp_path) == ["machine-new"]
