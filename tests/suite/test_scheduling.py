"""Which tests stay together, and in which order workers take them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import scheduling
from tests.support.cases import cases
from tests.support.scheduling import Took

ROOT = Path(__file__).parents[2]
TOOK = {"waits": Took(60, 5), "works": Took(50, 40), "long": Took(100, 20), "brief": Took(1, 1)}


@pytest.fixture
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A host with so many inotify instances and CPUs."""
    instances, cpus = request.param
    (tmp_path / "instances").write_text(f"{instances}\n")
    monkeypatch.setattr(scheduling, "_INSTANCES", tmp_path / "instances")
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    scheduling.serial.cache_clear()
    yield
    scheduling.serial.cache_clear()


@pytest.mark.parametrize("host", [(512, 4)], indirect=True)
@pytest.mark.usefixtures("host")
@cases(
    "file scope",
    ("nodes", "host/traffic/test_a.py", "host/traffic"),
    ("more-nodes", "host/nodes/test_a.py", "host/nodes"),
    ("machines", "host/machines/test_a.py", "host/machines"),
    ("simulated-nodes", "host/simulated/test_a.py", "host/simulated"),
    ("engine", "host/docker/test_a.py", "host/docker"),
    ("api-server", "api/bastion/test_a.py", "api/bastion"),
    ("deployment", "e2e/test_a.py", "e2e"),
    ("chaos", "chaos/test_a.py", "chaos/test_a.py"),
    ("servers", "servers/bus/test_a.py", "servers/bus/test_a.py"),
    ("unit", "unit/bus/test_a.py", "unit/bus/test_a.py"),
)
def test_tests_that_share_servers_stay_together(file: str, scope: str) -> None:
    assert scheduling.scope(f"tests/{file}::test_b[x/y]") == scope


@pytest.mark.parametrize("host", [(128, 16), (512, 2)], indirect=True)
@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("folder", ["traffic", "machines", "install", "nodes"])
def test_sandboxes_with_nodes_take_turns_on_a_small_host(folder: str) -> None:
    assert scheduling.scope(f"tests/host/{folder}/test_a.py::test_b") == "host/nodes"
    assert scheduling.scope("tests/host/docker/test_a.py::test_b") == "host/docker"


@cases(
    "scopes works following",
    ("most-cpu", ["waits", "long", "works", "brief"], True, "works"),
    ("waits-longest", ["works", "waits", "long", "brief"], False, "long"),
    ("waits-next", ["works", "waits", "brief"], False, "waits"),
    ("new-before-brief", ["brief", "new"], True, "new"),
    ("dear-before-new", ["new", "works"], True, "works"),
)
def test_each_worker_takes_the_dearest(scopes: list[str], works: bool, following: str) -> None:
    assert scheduling.following(scopes, TOOK, works=works) == following


def test_recorded_files_exist() -> None:
    recorded = scheduling.recorded()
    assert recorded
    gone = sorted(file for file in recorded if not (ROOT / file).exists())
    assert gone == [], "`make durations` writes tests/durations.json anew"
    assert {file.split("/")[0] for file in recorded} == {"tests"}
    assert all(took.wall >= 0 <= took.cpu for took in recorded.values())


@pytest.mark.parametrize("host", [(512, 4)], indirect=True)
@pytest.mark.usefixtures("host")
def test_what_a_scope_takes_is_the_sum_of_its_files() -> None:
    files = {
        "tests/api/bastion/test_a.py": Took(1, 2),
        "tests/api/bastion/test_b.py": Took(3, 4),
        "tests/unit/test_c.py": Took(5, 6),
    }
    assert scheduling.by_scope(files) == {"api/bastion": Took(4, 6), "unit/test_c.py": Took(5, 6)}
