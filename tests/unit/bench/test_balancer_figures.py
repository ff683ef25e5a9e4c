"""Figures of load balancers: whether an aim was reached, and its cost."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tools.bench import audit
from tools.bench.loadbalancers.crowd import CrowdFigures
from tools.bench.report import Measured, Spread
from tools.bench.usage import private

GOOD = Measured("created", 20, 300, Spread(299.0, 900.0, 1000.0))


@pytest.mark.parametrize(
    ("measured", "reached"),
    [
        pytest.param(GOOD, True, id="the-median-is-within-the-aim"),
        pytest.param(Measured("created", 20, 300, Spread(301.0, 302.0, 303.0)), False, id="it-is-not"),
        pytest.param(Measured("created", 20, 300, GOOD.spread, ("never",)), False, id="one-never-ended"),
        pytest.param(Measured("created", 0, 300, None), False, id="none-ever-ended"),
        pytest.param(
            Measured("changed", 20, 300, GOOD.spread, connections=200, errors=("reset",)),
            False,
            id="a-client-failed",
        ),
        pytest.param(Measured("changed", 20, None, GOOD.spread), True, id="without-an-aim"),
    ],
)
def test_an_aim_is_reached_by_the_median_and_without_failures(measured: Measured, reached: bool) -> None:
    assert measured.reached is reached


def test_idleness_is_that_of_envoy_and_windowbox_together() -> None:
    idle = {"envoy": 0.5, "worker-1": 0.25, "watcher-1": 0.25, "kube-apiserver": 5.0, "node-simulator": 3.0}
    assert CrowdFigures(1, "4 simulated nodes", 1.0, (), 20.0, {}, idle, 2.0, {}).ours_idle == 1.0


def test_events_do_not_count_as_writes() -> None:
    requests = Counter({"create events": 4, "patch services/status": 3, "get services": 1})
    assert audit.writes(audit.without_events(requests)) == 3


def test_private_memory_is_that_of_a_living_process() -> None:
    assert private(os.getpid()) > 1
    assert private(2**30) == 0.0
