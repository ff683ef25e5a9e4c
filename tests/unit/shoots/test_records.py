"""Names of Shoots, and which of them run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.shoots import records
from windowbox.errors import Malformed


@pytest.mark.parametrize("name", ["one", "a", "a-b", "a234567890123456"])
def test_a_valid_name_is_accepted(name: str) -> None:
    records.check_name(name)


@pytest.mark.parametrize("name", ["", "One", "1a", "a-", "a--b", "a2345678901234567", "../a", "a.b"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(Malformed, match="lower-case"):
        records.check_name(name)


def test_a_machine_pod_name_fits_a_host_name() -> None:
    shoot = records.new("a234567890123456", ())
    assert len(f"machine-{shoot.technical_id}-small-z1-12345-12345") <= 63


def test_a_hibernated_shoot_stays_without_running(tmp_path: Path) -> None:
    for name in ("asleep", "awake"):
        records.write(tmp_path, records.new(name, ()))
    records.hibernate(tmp_path, "asleep")
    assert records.names(tmp_path) == ["asleep", "awake"]
    assert records.awake_names(tmp_path) == ["awake"]
    records.wake(tmp_path, "asleep")
    records.wake(tmp_path, "asleep")
    assert records.awake_names(tmp_path) == ["asleep", "awake"]
