"""Workers share the tests so that servers are shared, and all end at about the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import scheduling

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("nodeid", "scope"),
    [
        pytest.param("tests/host/traffic/test_a.py::test_b[x/y]", "host/nodes", id="nodes"),
        pytest.param("tests/host/nodes/test_a.py::test_b", "host/nodes", id="more-nodes"),
        pytest.param("tests/host/machines/test_a.py::test_b", "host/nodes", id="machines"),
        pytest.param("tests/host/simulated/test_a.py::test_b", "host/simulated", id="simulated-nodes"),
        pytest.param("tests/host/docker/test_a.py::test_b", "host/docker", id="engine"),
        pytest.param("tests/api/bastion/test_a.py::test_b", "api/bastion", id="api-server"),
        pytest.param("tests/e2e/test_a.py::test_b", "e2e", id="deployment"),
        pytest.param("tests/chaos/test_a.py::test_b", "chaos/test_a.py", id="chaos"),
        pytest.param("tests/servers/bus/test_a.py::test_b", "servers/bus/test_a.py", id="servers"),
        pytest.param("tests/unit/bus/test_a.py::test_b", "unit/bus/test_a.py", id="unit"),
    ],
)
def test_tests_that_share_servers_stay_together(nodeid: str, scope: str) -> None:
    assert scheduling.scope(nodeid) == scope


def test_one_worker_begins_with_tests_that_wait() -> None:
    scopes = ["chaos/test_a.py", "servers/bus/test_a.py", "servers/bus/test_b.py", "unit/bus/test_a.py"]
    assert scheduling.waiting_first(scopes) == "servers/bus/test_a.py"
    assert scheduling.waiting_first(["api/bastion", "unit/bus/test_a.py"]) == "api/bastion"


def test_every_test_has_its_place_in_the_order() -> None:
    scopes = {scheduling.scope(f"tests/{path.relative_to(TESTS)}::t") for path in TESTS.rglob("test_*.py")}
    ordered = sorted(scopes, key=scheduling._rank)
    assert ordered[0] == "host/nodes"
    assert ordered[-1].startswith("unit/")
