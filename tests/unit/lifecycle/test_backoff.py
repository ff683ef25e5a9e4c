"""The one backoff policy: how long after which error an object is reconciled again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rules import rule
from windowbox.errors import Conflict, Forbidden, Malformed, Unreachable, Waiting, WindowboxError
from workers.core.reconcile import BACKOFF, EXTENSION_BACKOFF, Backoff

AWAY, WRONG, CONFLICT = Unreachable("the server is away"), Malformed("spec is wrong"), Conflict("changed")
FORBIDDEN = Forbidden("forbidden")


@pytest.mark.parametrize(
    ("policy", "error", "delays"),
    [
        pytest.param(EXTENSION_BACKOFF, AWAY, (0.005, 0.01, 0.02, 0.04), id="B-1-first"),
        pytest.param(EXTENSION_BACKOFF, WRONG, (30, 60, 120, 240, 480, 960, 1000, 1000), id="V-9-permanent"),
        pytest.param(EXTENSION_BACKOFF, FORBIDDEN, (0.005, 0.01, 0.02), id="B-1-forbidden"),
        pytest.param(BACKOFF, CONFLICT, (0.05, 0.1, 0.2), id="conflict"),
        pytest.param(BACKOFF, AWAY, (0.1, 0.2, 0.4), id="transient"),
        pytest.param(BACKOFF, WRONG, (5, 10, 20, 40, 80, 160, 300, 300), id="LB-16-backoff"),
        pytest.param(BACKOFF, Waiting("for the tide", retry_after=7), (7, 7, 7), id="LB-6-delay"),
    ],
)
def test_delays_double_up_to_a_ceiling(
    policy: Backoff, error: WindowboxError, delays: tuple[float, ...]
) -> None:
    found = [policy.delay(error, attempt) for attempt in range(1, len(delays) + 1)]
    assert all(plain <= one <= plain * 1.1 + 1e-9 for one, plain in zip(found, delays, strict=True)), found


@rule("B-1", "V-9")
def test_transient_errors_wait_up_to_a_thousand_seconds() -> None:
    late = [EXTENSION_BACKOFF.delay(AWAY, attempt) for attempt in (17, 18, 19, 20, 10**9)]
    expected = (327.68, 655.36, 1000, 1000, 1000)
    assert all(plain <= one <= plain * 1.1 + 1e-9 for one, plain in zip(late, expected, strict=True)), late


@given(st.integers(1, 10**9), st.sampled_from([AWAY, WRONG, CONFLICT, FORBIDDEN]))
def test_a_delay_is_never_longer_than_the_ceiling(attempt: int, error: WindowboxError) -> None:
    assert 0 < BACKOFF.delay(error, attempt) <= BACKOFF.longest * 1.1
