"""Keys that are made quickly. Their length is a subject of tests/unit/secretsmanager."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from windowbox.secretsmanager import generation


@pytest.fixture(scope="package", autouse=True)
def shortest_keys() -> Iterator[None]:
    """Too short for TLS, where nobody connects with them: a ControlPlane has six."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "_BITS", 1024)
        yield
