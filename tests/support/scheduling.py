"""Which tests stay together, and which begin first, where several workers run them: a plugin of pytest.

What they take is in `tests/durations.json`, which `make durations` writes.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from xdist.scheduler import LoadScopeScheduling

DURATIONS = Path(__file__).parents[1] / "durations.json"

_WITH_NODES = frozenset({"availability", "commands", "install", "machines", "nodes", "traffic"})
"""Folders of tests/host whose sandboxes have real nodes."""

_TOGETHER = "host/nodes"
"""Their scope where they run one after the other."""

_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH = 512
"""A sandbox with three nodes and its Pods takes up to 80 inotify instances; other tests need more."""

_MANY = 4
"""CPUs."""

_SHARING = frozenset({"api", "conformance", "e2e", "host"})
"""Here, the tests of a folder share servers; elsewhere, at most those of a file do."""


class Took(NamedTuple):
    """Seconds."""

    wall: float
    cpu: float

    @property
    def waiting(self) -> float:
        return self.wall - self.cpu


_UNKNOWN = Took(wall=30.0, cpu=15.0)
"""New files begin early: one that takes long must not be the last."""


class ByDuration(LoadScopeScheduling):
    """Tests that share servers run in one worker, one after the other.

    As many workers as there are CPUs take those first that need most CPU, the others those that wait most: so
    that the CPUs have work at any time, and all workers end together.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._took = by_scope(recorded())

    def schedule(self) -> None:
        began = self.collection is not None
        super().schedule()
        if (
            not began
            and _TOGETHER in {self._split_scope(test) for test in self.collection or ()}
            and serial()
        ):
            self.config.get_terminal_writer().line(
                f"Tests with nodes run one after the other. Side by side they need {_MANY} CPUs, and: "
                f"sudo sysctl fs.inotify.max_user_instances={_ENOUGH}"
            )

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        works = int(node.gateway.id.removeprefix("gw")) < (os.cpu_count() or 1)
        chosen = following(self.workqueue, self._took, works=works)
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByDuration:
    return ByDuration(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not os.environ.get("LONG") and os.environ.get("CHAOS") != "long":
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


def scope(nodeid: str) -> str:
    """What those have in common that stay together."""
    _, part, *more = nodeid.partition("::")[0].split("/")
    if part == "host" and more[0] in _WITH_NODES and serial():
        return _TOGETHER
    return "/".join((part, *(more[:-1] if part in _SHARING else more)))


@cache
def serial() -> bool:
    """Whether sandboxes with nodes run one after the other: this host has few inotify instances, or few CPUs.

    On two CPUs they win nothing side by side, and tests of dying nodes take the load for a failure.
    """
    few = not _INSTANCES.exists() or int(_INSTANCES.read_text()) < _ENOUGH
    return few or (os.cpu_count() or 1) < _MANY


def recorded() -> dict[str, Took]:
    """What the tests of each file took."""
    found: dict[str, list[float]] = json.loads(DURATIONS.read_text())
    return {file: Took(wall, cpu) for file, (wall, cpu, *_) in found.items()}


def by_scope(files: Mapping[str, Took]) -> dict[str, Took]:
    sums: dict[str, Took] = defaultdict(lambda: Took(0.0, 0.0))
    for file, took in files.items():
        before = sums[scope(file)]
        sums[scope(file)] = Took(before.wall + took.wall, before.cpu + took.cpu)
    return dict(sums)


def following(scopes: Iterable[str], took: Mapping[str, Took], *, works: bool) -> str:
    """The scope that a worker takes next: of those that need CPU or wait, the one that does so longest."""

    def length(scope: str) -> float:
        known = took.get(scope, _UNKNOWN)
        return known.cpu if works else known.waiting

    return max(scopes, key=length)
