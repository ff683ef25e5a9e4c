"""`make quick` runs the tests that changed files reach, for about a minute."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import quick
from tests.support.cases import cases
from tests.support.quick import House
from tests.support.scheduling import Took

ROOT = Path(__file__).parents[2]
# In parts, so that this file does not name them.
TEMPLATE = "/".join(("deploy", "charts", "windowbox", "templates", "work.yaml"))
UNNAMED = "/".join(("deploy", "nowhere", "unnamed" + ".txt"))


@pytest.fixture(scope="module")
def house() -> House:
    return House(ROOT)


@cases(
    "file reached",
    ("module", "workers/loadbalancer/ipam/ranges.py", "tests/unit/ipam/test_ranges.py"),
    ("module-of-a-worker", "bus/workqueue/queue.py", "tests/servers/bus/test_pool.py"),
    ("rules-of-the-house", "bus/workqueue/queue.py", "tests/suite/test_house.py"),
    ("test", "tests/unit/ipam/test_ranges.py", "tests/unit/ipam/test_ranges.py"),
    ("folder-with-fixtures", "tests/host/traffic/conftest.py", "tests/host/traffic/test_status.py"),
    ("support", "tests/support/worldwithnodes.py", "tests/host/nodes/test_leaving.py"),
    ("all-fixtures", "tests/conftest.py", "tests/e2e/test_zones.py"),
    ("page", "docs/scaling.md", "tests/unit/docs/test_pages.py"),
    ("named", "deploy/rbac.yaml", "tests/api/providers/test_grants.py"),
    ("folder-is-named", TEMPLATE, "tests/api/chart/test_chart.py"),
    ("unnamed", UNNAMED, "tests/unit/docs/test_pages.py"),
)
def test_a_changed_file_reaches_tests(house: House, file: str, reached: str) -> None:
    assert reached in quick.reached(house, [file])


def test_a_changed_file_reaches_no_other_tests(house: House) -> None:
    reached = quick.reached(house, ["workers/kinds/bastion/bastionpool.py"])
    assert not [test for test in reached if test.startswith(("tests/unit/ipam", "tests/servers/nameserver"))]
    assert set(quick.reached(house, ["docs/scaling.md"])) == set(house.tests("tests/unit/docs"))


def test_a_module_that_has_gone_reaches_those_that_import_it(house: House) -> None:
    gone = House(house.root)
    gone.__dict__["graph"] = house.graph
    gone.__dict__["texts"] = {
        "tests.unit.ipam.test_ranges": "from workers.loadbalancer.ipam import gone, ranges",
        "tests.unit.bus.test_subjects": "import bus.subjects",
    }
    reached = quick.reached(gone, ["workers/loadbalancer/ipam/gone.py"])
    assert set(reached) == {"tests/unit/ipam/test_ranges.py"}


def test_near_tests_run_first_and_then_cheap_ones() -> None:
    took = {
        "far": Took(1, 1), "dear": Took(60, 60), "near": Took(8, 8), "cheap": Took(2, 2), "waits": Took(35, 1)
    }  # fmt: skip
    away = {"far": 3, "dear": 1, "near": 1, "cheap": 1, "waits": 2}
    assert quick.chosen(away, took, workers=4, budget=40) == ["cheap", "near", "waits", "far"]
    assert quick.chosen(away, took, workers=1, budget=11) == ["cheap", "near", "far"]


def test_unknown_tests_count_as_some_seconds() -> None:
    many = {f"test-{number}": 1 for number in range(1000)}
    assert 1 < len(quick.chosen(many, {}, workers=4, budget=40)) < 100


def test_what_differs_and_what_is_new_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(quick, "ROOT", tmp_path)
    git("init")
    for name in ("kept", "changed", "gone"):
        (tmp_path / name).write_text(name)
    git("add", ".")
    git("commit", "--message=first")
    (tmp_path / "changed").write_text("else")
    (tmp_path / "gone").unlink()
    (tmp_path / "new").touch()
    assert quick.changed() == ["changed", "gone", "new"]
    git("commit", "--all", "--message=second")
    assert quick.changed() == ["new"]
    assert quick.changed("HEAD~") == ["changed", "gone", "new"]
