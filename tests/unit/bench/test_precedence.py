"""Processes that run before others."""

from __future__ import annotations

import contextlib
import os

from tools.bench.usage import running_first
from windowbox.errors import Refused


def test_precedence_ends_with_the_measurement() -> None:
    before = os.sched_getscheduler(0)
    # Without the right, it is refused instead of measuring beside others.
    with contextlib.suppress(Refused), running_first([os.getpid()]):
        assert os.sched_getscheduler(0) == os.SCHED_RR
    assert os.sched_getscheduler(0) == before
