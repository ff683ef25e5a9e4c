"""The ids of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import coverage_page

_TESTS = Path(__file__).parents[1]
_SELECTING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf")
"""Options of pytest with which it collects only some."""


@pytest.fixture(scope="session")
def collected(request: pytest.FixtureRequest) -> list[str]:
    """Collecting takes ten seconds, so those of this run are taken if it is of all tests."""
    config = request.config
    paths = {(config.invocation_params.dir / argument).resolve() for argument in config.args}
    if paths == {_TESTS} and not any(config.getoption(name, None) for name in _SELECTING):
        return [item.nodeid for item in request.session.items]
    return coverage_page.collected()
