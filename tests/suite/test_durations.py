"""What tests take is measured with the servers that they use, and written to a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import durations
from tests.support.scheduling import Took

ROOT = Path(__file__).parents[2]
TESTS = """
import subprocess, sys, time
import pytest

BUSY = "import time\\nwhile time.process_time() < 0.3: pass\\nprint(flush=True)\\ntime.sleep({rest})"

def busy(rest, **options):
    return subprocess.Popen([sys.executable, "-c", BUSY.format(rest=rest)], stdout=subprocess.PIPE, **options)

@pytest.fixture
def server():
    yield
    busy(0).communicate()

def test_skipped(): pytest.skip()
def test_waits(): time.sleep(0.5)
def test_ended(): busy(0).communicate()
def test_living(): busy(3).stdout.readline()
def test_orphan():
    again = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
    done = subprocess.Popen([sys.executable, "-c", again, BUSY.format(rest=3)], stdout=subprocess.PIPE)
    done.stdout.readline()
    done.wait()
def test_torn_down(server): pass

@pytest.fixture
def shared():
    server = busy(0.5)
    server.stdout.readline()
    yield
    server.wait()
def test_with(shared): time.sleep(0.1)
"""


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.long), 2])
def test_cpu_of_servers_is_that_of_the_test(tmp_path: Path, workers: int) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    file = tmp_path / "measured.json"
    command = (
        sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "tests.support.durations", f"-n{workers}",
        f"--rootdir={tmp_path}", f"--measure={file}", str(tmp_path),
    )  # fmt: skip
    only_those = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=only_those, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout
    measured = {test.partition("::")[2]: phases for test, phases in durations.read(file).items()}
    assert "call" not in measured["test_skipped"]
    assert measured["test_waits"]["call"].wall >= 0.5
    assert measured["test_waits"]["call"].cpu < 0.2
    for busy in ("test_ended", "test_living", "test_orphan"):
        assert measured[busy]["call"].cpu >= 0.25, busy
    assert measured["test_torn_down"]["teardown"].cpu >= 0.25
    assert measured["test_with"]["setup"].cpu >= 0.25
    assert measured["test_with"]["teardown"].cpu < 0.2, "what has ended was counted while it lived"


def test_the_dearest_are_named_first() -> None:
    measured = {
        "tests/api/one/test_a.py::test_cheap": {"call": Took(9.0, 0.5)},
        "tests/api/one/test_b.py::test_dear": {
            "setup": Took(1.0, 2.0),
            "call": Took(1.0, 2.0),
        },
        "tests/e2e/test_c.py::test_c": {"call": Took(1.0, 1.0)},
    }
    text = "\n".join(durations.summary(measured))
    folders, scopes, tests, _ = text.split("in all")
    assert folders.splitlines()[1:3] == [
        "     4.5     11.0      2  api/one",
        "     1.0      1.0      1  e2e",
    ]
    assert scopes.index("api/one") < scopes.index("e2e")
    assert tests.index("test_dear") < tests.index("test_c") < tests.index("test_cheap")


def test_a_part_of_the_tests_updates_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("test_a.py", "test_b.py", "test_skipped.py"):
        (tmp_path / name).touch()
    measured = {f"test_a.py::{test}": {"call": Took(1.26, 0.5)} for test in ("one", "two")}
    measured["test_skipped.py::one"] = {"teardown": Took(0.0, 0.0)}
    before = {"test_a.py": [9.0, 9.0, 9], "test_b.py": [3.0, 2.0, 1], "test_gone.py": [1.0, 1.0, 1]}
    assert durations.recorded(measured, before).splitlines() == [
        "{", '"test_a.py": [2.5, 1.0, 2],', '"test_b.py": [3.0, 2.0, 1]', "}"
    ]  # fmt: skip


def test_who_has_ended_is_counted_once() -> None:
    one = durations.Process
    before = {1: one(0, 5.0), 2: one(1, 1.0), 3: one(2, 0.5), 8: one(99, 2.0), 9: one(8, 3.0)}
    # 1 has waited for 2, and 2 for 3; nobody that is counted has waited for 8.
    assert durations.difference(before, {1: one(0, 7.0)}) == 0.5
