"""Processes that run before others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.bench.usage import running_first
from windowbox.errors import Refused


def _policies(process: int) -> set[int]:
    return {os.sched_getscheduler(int(task.name)) for task in Path(f"/proc/{process}/task").iterdir()}


def test_a_measurement_gives_precedence_back() -> None:
    before = os.sched_getscheduler(0)
    try:
        with running_first([os.getpid()]):
            given = _policies(os.getpid())
    except Refused:
        pytest.skip("this user may not set real-time priorities")
    assert os.SCHED_RR in given
    assert os.sched_getscheduler(0) == before
