"""Versions beside which windowbox is known to work."""

from __future__ import annotations

import pytest

from sandbox.programs import binaries
from windowbox import versions


@pytest.mark.parametrize(
    ("component", "version", "why"),
    [
        pytest.param("Kubernetes", "v1.33.0", None, id="the-oldest"),
        pytest.param("Kubernetes", "v1.36.3+k3s1", None, id="the-newest-of-a-distribution"),
        pytest.param("Kubernetes", "v1.32.9", "is older than windowbox supports: 1.33 to 1.37", id="older"),
        pytest.param("Kubernetes", "v1.38.0", "newer than windowbox has been tried with: 1.33", id="newer"),
        pytest.param("Kubernetes", "v2.0.0", "newer than", id="another-major"),
        pytest.param("Gardener", "v1.150.0-dev", None, id="gardener"),
        pytest.param("Gardener", "1.99.1", "older than windowbox supports: 1.140 to 1.150", id="two-digits"),
        pytest.param("Gardener", "latest", "'latest' is no version", id="no-version"),
    ],
)
def test_versions_out_of_range_are_told(component: str, version: str, why: str | None) -> None:
    found = versions.problem(component, version)
    assert (found is None) == (why is None)
    assert why is None or why in str(found)


def test_programs_of_the_sandbox_are_in_range() -> None:
    for program, component in (("kube-apiserver", "Kubernetes"), ("gardener-resource-manager", "Gardener")):
        assert versions.problem(component, binaries.PROGRAMS[program].version) is None
