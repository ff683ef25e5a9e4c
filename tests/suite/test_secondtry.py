"""Which failures get a second try in CI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import secondtry, skips

ROOT = Path(__file__).parents[2]
FLAKY = """
from pathlib import Path

def test_passes_alone():
    before = Path("failed-once")
    if not before.exists():
        before.touch()
        raise AssertionError("beside others")

def test_never_passes():
    assert {never_fails}
"""
SKIPPED_LATER = """
from pathlib import Path
import pytest

def test_it():
    before = Path("failed-once")
    if before.exists():
        pytest.skip("a program is gone")
    before.touch()
    raise AssertionError("beside others")
"""


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        pytest.param([], "read what it printed above", id="none-named"),
        pytest.param(["a", "b", "c"], "", id="few"),
        pytest.param(["a", "b", "c", "d"], "4 tests failed", id="many"),
    ],
)
def test_only_a_few_failures_get_a_second_try(failed: list[str], said: str) -> None:
    reason = secondtry.verdict(failed)
    assert said in reason
    assert bool(reason) is bool(said)


@pytest.mark.parametrize("never_fails", [True, False])
def test_the_second_try_decides_and_tells_what_was_flaky(tmp_path: Path, never_fails: bool) -> None:
    (tmp_path / "test_some.py").write_text(FLAKY.format(never_fails=never_fails))
    environment = os.environ | {"CI": "true", "PYTHONPATH": str(ROOT)}
    first = _run(tmp_path, environment, "pytest", "-q", "-p", "no:randomly")
    assert first.returncode == 1
    second = _run(tmp_path, environment, "tests.support.secondtry", "1")
    assert second.returncode == (0 if never_fails else 1)
    assert ("FLAKY" in second.stdout) is never_fails
    assert "test_some.py::test_passes_alone" in second.stdout


def test_a_second_try_that_is_skipped_shows_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SKIPPED_LATER)
    environment = os.environ | {"CI": "true", "PYTHONPATH": str(ROOT)}
    assert _run(tmp_path, environment, "pytest", "-q").returncode == 1
    assert _run(tmp_path, environment, "tests.support.secondtry", "1").returncode == 1


@pytest.mark.parametrize(("ci", "code"), [("", "1"), ("true", "2"), ("true", str(skips.UNEXPLAINED))])
def test_persons_and_other_faults_get_no_second_try(tmp_path: Path, ci: str, code: str) -> None:
    cache = tmp_path / ".pytest_cache/v/cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps({"test_some.py::test_it": True}))
    environment = os.environ | {"CI": ci, "PYTHONPATH": str(ROOT)}
    done = _run(tmp_path, environment, "tests.support.secondtry", code)
    assert (done.returncode, done.stdout) == (int(code), "")


def _run(folder: Path, environment: dict[str, str], *module: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *module]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
