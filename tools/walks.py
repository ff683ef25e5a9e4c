"""A pytest plugin that counts the functions and files that runs of each pool pass through.

    python -m pytest -p tools.walks tests/api/machine/test_machine.py

For each pool it prints, as median and maximum of its runs: the distinct functions in `workers/` that a run
entered (stays), their files (rooms), and the frames from the pool to the first function of the kind itself.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
_OURS = tuple(f"{ROOT}/{room}/" for room in ("bus", "windowbox", "workers"))
_WORKERS = f"{ROOT}/workers/"
_CORE = f"{ROOT}/workers/core/"
_WORK = "work."

_runs: dict[tuple[str, int], tuple[set[tuple[str, str]], list[int]]] = defaultdict(lambda: (set(), []))


def _profile(frame: FrameType, event: str, _: Any) -> None:
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(_WORKERS) or code.co_name.startswith("<"):
        return
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return
    if task is None or not task.get_name().startswith(_WORK):
        return
    functions, frames = _runs[task.get_name().split(".")[1], id(task)]
    functions.add((code.co_filename, code.co_qualname))
    if not frames and not code.co_filename.startswith(_CORE):
        above: FrameType | None = frame
        while above is not None:
            frames += [1] if above.f_code.co_filename.startswith(_OURS) else []
            above = above.f_back


def pytest_configure() -> None:
    sys.setprofile(_profile)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    sys.setprofile(None)
    pools: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for (pool, _), (functions, frames) in _runs.items():
        pools[pool].append((len(functions), len({file for file, _ in functions}), len(frames)))
    terminalreporter.write_line(f"{'pool':22} {'runs':>5} {'stays':>12} {'rooms':>12} {'frames':>12}")
    for pool, runs in sorted(pools.items()):
        columns = [f"{statistics.median(column):.0f} … {max(column)}" for column in zip(*runs, strict=True)]
        terminalreporter.write_line(f"{pool:22} {len(runs):5} " + " ".join(f"{one:>12}" for one in columns))
