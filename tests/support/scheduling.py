"""Which tests stay together, and which begin first, where several workers run them: a plugin of pytest."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

_WITH_NODES = frozenset({"nodes", "traffic", "sandbox", "commands", "simulated"})
"""Folders of tests/host whose sandboxes have nodes: a host has inotify instances for one at a time."""


class ByPackage(LoadScopeScheduling):
    """Where tests run at once, those of a package stay together: they share servers."""

    def _split_scope(self, nodeid: str) -> str:
        _, cost, *more = nodeid.split("/")
        if cost == "host" and more[0] in _WITH_NODES:
            return "host/nodes"
        return f"{cost}/{more[0]}" if cost in ("servers", "host") else cost


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByPackage:
    return ByPackage(config, log)
