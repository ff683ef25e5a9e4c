"""The first lines of the demo: what it will show here, what not and why, and how long it will take."""

from __future__ import annotations

from sandbox.forecast import summary
from sandbox.forecast.facts import Facts


def opening(facts: Facts) -> list[str]:
    """Six lines at most."""
    return [*summary.lines(facts), "More: `windowbox doctor --before`.", ""]
