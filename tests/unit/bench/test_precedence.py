"""Processes that run before others."""

from __future__ import annotations

import contextlib
import os

from tools.bench import precedence
from windowbox.errors import Refused


def test_precedence_ends_with_the_measurement() -> None:
    before = os.sched_getscheduler(0)
    # Who may not have it is told so, instead of measured beside others.
    with contextlib.suppress(Refused), precedence.given([os.getpid()]):
        assert os.sched_getscheduler(0) == os.SCHED_RR
    assert os.sched_getscheduler(0) == before
