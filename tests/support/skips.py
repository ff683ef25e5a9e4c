"""In CI, a test may be skipped for the reasons listed here and for no other: a plugin of pytest.

A skip that nobody reads is a test that nobody runs: a program that the set-up forgot would go unnoticed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

import pytest

ALLOWED: Mapping[str, str] = {
    r"the contract('s| with its| is not| to compare)|the CustomResourceDefinitions": (
        "Gardener's contract and definitions belong to others and are not part of this repository. What we "
        "derive from them is, and is tested where they lie beside it."
    ),
    r"is not built: run `windowbox gardener build`": (
        "Building a real Gardener takes half an hour; the nightly run has one."
    ),
    r"this system has no net\.ipv4\.tcp_migrate_req": "Linux has this setting since 5.14.",
}
"""Which reasons a test may give, and why CI cannot do better."""

UNEXPLAINED = 6
"""What pytest exits with then. None of its own codes: no second try helps."""


def unexplained(reasons: Iterable[str]) -> list[str]:
    """Those that the list does not allow."""
    return sorted({reason for reason in reasons if not any(re.search(one, reason) for one in ALLOWED)})


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _unexplained(session.config) and session.exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
    ):
        session.exitstatus = UNEXPLAINED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in _unexplained(terminalreporter.config):
        terminalreporter.write_line(
            f"Tests were skipped: {reason}. CI must run them: make it possible, or say in "
            "tests/support/skips.py why it cannot be",
            red=True,
        )


def _unexplained(config: pytest.Config) -> list[str]:
    # With several workers, only the process that starts them has a reporter, and it sees all skips.
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") != "true" or not reporter or hasattr(config, "workerinput"):
        return []
    return unexplained(_reason(report) for report in reporter.stats.get("skipped", ()))


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
