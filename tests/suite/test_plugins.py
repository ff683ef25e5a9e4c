"""Plugins of pytest, and the second try of CI."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import secondtry, skips, tempfiles
from tests.support.cases import cases, long

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
SECOND_TRY = ("tests.support.secondtry", "1")
FLAKY = """
from pathlib import Path
import pytest

def test_passes_alone():
    before = Path("failed-once")
    if not before.exists():
        before.touch()
        raise AssertionError("beside others")
    {then}
"""
SSHD = "sshd is not on this machine"


@cases(
    "failed said",
    ("none-named", [], "read what it printed above"),
    ("few", ["a", "b", "c"], ""),
    ("many", ["a", "b", "c", "d"], "4 tests failed"),
)
def test_only_a_few_failures_get_a_second_try(failed: list[str], said: str) -> None:
    reason = secondtry.verdict(failed)
    assert said in reason
    assert bool(reason) is bool(said)


@cases(
    "then code",
    ("passes", "", 0),
    long("fails", "assert False", 1),
    ("is-skipped", "pytest.skip('a program is gone')", 1),
)
def test_the_second_try_decides_and_names_flaky_tests(tmp_path: Path, then: str, code: int) -> None:
    (tmp_path / "test_some.py").write_text(FLAKY.format(then=then))
    assert _run(tmp_path, "pytest", "-q", "-p", "no:randomly").returncode == 1
    second = _run(tmp_path, *SECOND_TRY)
    assert second.returncode == code
    assert ("FLAKY" in second.stdout) is (code == 0)
    assert "test_some.py::test_passes_alone" in second.stdout


@pytest.mark.parametrize(("ci", "code"), [("", "1"), ("true", "2"), ("true", str(skips.UNEXPLAINED))])
def test_persons_and_other_faults_get_no_second_try(tmp_path: Path, ci: str, code: str) -> None:
    cache = tmp_path / ".pytest_cache/v/cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps({"test_some.py::test_it": True}))
    done = _run(tmp_path, "tests.support.secondtry", code, ci=ci)
    assert (done.returncode, done.stdout) == (int(code), "")


@cases(
    "reason ci workers status",
    ("unexplained-in-ci", SSHD, "true", 0, skips.UNEXPLAINED),
    ("unexplained-in-a-worker", SSHD, "true", 1, skips.UNEXPLAINED),
    ("unexplained-elsewhere", SSHD, "", 0, 0),
    ("explained-in-ci", "the contract's examples are not here", "true", 0, 0),
)
def test_ci_fails_on_unexplained_skips(
    tmp_path: Path, reason: str, ci: str, workers: int, status: int
) -> None:
    (tmp_path / "test_some.py").write_text(
        f"import pytest\n\ndef test_one(): pass\n\ndef test_two(): pytest.skip({reason!r})\n"
    )
    options = ("-p", "xdist", "-p", "tests.support.skips", f"-n{workers}", f"--rootdir={tmp_path}")
    done = _run(ROOT, "pytest", *options, str(tmp_path), ci=ci)
    assert done.returncode == status, done.stdout
    assert ("CI must run them" in done.stdout) == bool(status)


@pytest.mark.parametrize("place", ["/nowhere", "/proc"], ids=["missing", "no-programs"])
def test_temporary_files_go_only_where_programs_run(place: str) -> None:
    assert not tempfiles.suited(Path(place), enough=0)


def test_temporary_files_go_only_where_there_is_enough(tmp_path: Path) -> None:
    assert tempfiles.suited(tmp_path, enough=0)
    assert not tempfiles.suited(tmp_path, enough=1 << 60)


def test_a_chosen_root_of_temporary_files_stays(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", "/chosen")
    tempfiles.pytest_configure(pytestconfig)
    assert os.environ["PYTEST_DEBUG_TEMPROOT"] == "/chosen"


def test_every_sleep_in_a_test_has_its_reason() -> None:
    unexplained = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if "sleep(" in (text := path.read_text())
        for line in _sleeps(text)
        if not any("# " in said for said in text.splitlines()[line - 2 : line])
    ]
    assert unexplained == [], "wait for an event, or say in a comment why time must pass"


def _sleeps(text: str) -> Iterator[int]:
    """The lines with a sleep; `sleep(0)` only yields to others."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(value=0)]):
                pass
            case ast.Call(func=ast.Attribute(attr="sleep")):
                yield node.lineno


def _run(folder: Path, *module: str, ci: str = "true") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *module],
        cwd=folder,
        env=os.environ | {"CI": ci, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
