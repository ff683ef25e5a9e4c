from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import tempfiles


@pytest.mark.parametrize("place", ["/nowhere", "/proc"], ids=["missing", "no-programs"])
def test_temporary_files_go_only_where_programs_run(place: str) -> None:
    assert not tempfiles.suited(Path(place))


def test_temporary_files_go_only_where_there_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfiles, "_ENOUGH", 0)
    assert tempfiles.suited(tmp_path)
    monkeypatch.setattr(tempfiles, "_ENOUGH", 1 << 60)
    assert not tempfiles.suited(tmp_path)


def test_a_root_that_somebody_chose_stays(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", "/chosen")
    tempfiles.pytest_configure(pytestconfig)
    assert os.environ["PYTEST_DEBUG_TEMPROOT"] == "/chosen"
