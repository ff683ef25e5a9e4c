"""Versions beside which windowbox is known to work."""

from __future__ import annotations

from sandbox.programs import binaries
from tests.support.cases import cases
from windowbox import versions


@cases(
    "component version why",
    ("the-oldest", "Kubernetes", "v1.33.0", None),
    ("the-newest-of-a-distribution", "Kubernetes", "v1.36.3+k3s1", None),
    ("older", "Kubernetes", "v1.32.9", "is older than windowbox supports: 1.33 to 1.37"),
    ("newer", "Kubernetes", "v1.38.0", "newer than windowbox has been tried with: 1.33"),
    ("another-major", "Kubernetes", "v2.0.0", "newer than"),
    ("gardener", "Gardener", "v1.150.0-dev", None),
    ("two-digits", "Gardener", "1.99.1", "older than windowbox supports: 1.140 to 1.150"),
    ("no-version", "Gardener", "latest", "'latest' is no version"),
)
def test_versions_out_of_range_are_reported(component: str, version: str, why: str | None) -> None:
    found = versions.problem(component, version)
    assert (found is None) == (why is None)
    assert why is None or why in str(found)


def test_programs_of_the_sandbox_are_in_range() -> None:
    for program, component in (("kube-apiserver", "Kubernetes"), ("gardener-resource-manager", "Gardener")):
        assert versions.problem(component, binaries.PROGRAMS[program].version) is None
