"""Which tests stay together, and which begin first, where several workers run them: a plugin of pytest."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

_BY_COST = ("host/nodes", "chaos", "conformance", "host", "api", "e2e", "suite", "servers", "unit")
"""The dearest first: what comes last fills up the worker that would end first."""

_WITH_NODES = frozenset({"availability", "commands", "install", "machines", "nodes", "traffic"})
"""Folders of tests/host whose sandboxes have real nodes: a host has inotify instances for one at a time."""

_WAITING = "servers/"
"""What these tests start needs little CPU; most of the time they wait."""

_SHARING = frozenset({"api", "conformance", "e2e", "host"})
"""Here, the tests of a folder share servers; elsewhere, at most those of a file do."""


class ByCost(LoadScopeScheduling):
    """Tests that share servers run in one worker, one after the other.

    Of three workers or more, the last begins with those that wait most: beside it, the others have the CPUs.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        if self.numnodes > 2 and node.gateway.id == f"gw{self.numnodes - 1}":
            self.workqueue.move_to_end(waiting_first(self.workqueue), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByCost:
    return ByCost(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not os.environ.get("LONG") and os.environ.get("CHAOS") != "long":
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(scope(item.nodeid)))


def scope(nodeid: str) -> str:
    """What those have in common that stay together."""
    _, cost, *more = nodeid.partition("::")[0].split("/")
    if cost == "host" and more[0] in _WITH_NODES:
        return "host/nodes"
    return "/".join((cost, *(more[:-1] if cost in _SHARING else more)))


def waiting_first(scopes: Iterable[str]) -> str:
    """The scope that the worker takes next which has the tests that wait."""
    return min(scopes, key=lambda scope: not scope.startswith(_WAITING))


def rank(scope: str) -> int:
    cost = scope.partition("/")[0]
    return _BY_COST.index(scope if scope in _BY_COST else cost)
