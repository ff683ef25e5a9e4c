"""Console logs outlive their machines."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.shoots import consoles
from tests.support.cases import cases
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


def keep(folder: Path, pod: dict[str, Any] = POD) -> None:
    consoles.keep(folder / "kept", [folder / "logs"], [pod])


def test_a_log_is_kept_after_its_pod(tmp_path: Path) -> None:
    log = written(tmp_path / "logs")
    keep(tmp_path)
    log.unlink()
    assert list(consoles.lines(tmp_path / "kept", "a")) == ["init: machine boots", "userdata: a b c"]


@cases("number gone", ("another-boot", 1, False), ("a-recreated-node-reuses-names", 0, True))
def test_each_boot_has_its_log(tmp_path: Path, number: int, gone: bool) -> None:
    for each in (0, number):
        written(tmp_path / "logs", each)
        keep(tmp_path)
        keep(tmp_path)
        if gone:
            shutil.rmtree(tmp_path / "logs")
    assert len(list(consoles.lines(tmp_path / "kept", "machine-a"))) == 4
    assert len(list(consoles.lines(tmp_path / "kept", "a"))) == 4


def test_other_pods_have_no_console(tmp_path: Path) -> None:
    written(tmp_path / "logs", pod="infra_bastion_u2")
    bastion = {"metadata": {"name": "bastion", "namespace": "infra", "uid": "u2"}}
    keep(tmp_path, bastion)
    assert consoles.machines(tmp_path / "kept") == []


def test_an_unknown_machine_is_refused_with_known_names(tmp_path: Path) -> None:
    written(tmp_path / "logs")
    keep(tmp_path)
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
