"""Checks of Shoots by their clouds' rules: Shoots each second in one process, and `windowbox validate`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clouds import table as clouds
from clouds.frame import admission
from commands.clouds import documents, validate
from tools.bench.bus.emptyruns import CHECKOUT
from tools.bench.report import MachineFacts, Report, Spread, say, table

_EXAMPLES = CHECKOUT / "examples" / "clouds"
_STARTS = 10
_PATIENCE = 60.0


@dataclass(frozen=True)
class Checked:
    """The Shoot of one cloud."""

    cloud: str
    shoots_per_second: float
    mutated_per_second: float
    started_cpu_ms: float
    """CPU of `windowbox validate` with the example, from its start to its end; the median."""
    after_start: Spread
    """From the bytes of the file to the answer, in a process that runs."""


@dataclass(frozen=True, kw_only=True)
class ValidationFigures(MachineFacts):
    """The result of `bench validate`."""

    shoots: int
    checked: Sequence[Checked]


def measure(shoots: int) -> Report:
    """Check and mutate the example Shoot of each cloud so often, and start the command with it."""
    return _report(ValidationFigures(shoots=shoots, checked=[_cloud(one, shoots) for one in clouds.TYPES]))


def _cloud(type_: str, shoots: int) -> Checked:
    say(f"{shoots} Shoots of type {type_}")
    file = _EXAMPLES / f"{type_}.yaml"
    text, cloud = file.read_bytes(), clouds.cloud(type_)
    objects = documents.read(str(file), text)
    (shoot,) = (one.content for one in objects if one.kind == "Shoot")
    find = documents.lookup(objects, set())
    checked = _cpu(shoots, lambda: admission.problems(cloud, "shoot", shoot, None, find))
    mutated = _cpu(shoots, lambda: admission.mutated(cloud, shoot, None, find))
    took = []
    for _ in range(100):
        started = time.perf_counter()
        assert not validate.check(documents.read(str(file), text)).problems
        took.append(time.perf_counter() - started)
    starts = sorted(_start(file) for _ in range(_STARTS))
    return Checked(type_, shoots / checked, shoots / mutated, 1000 * starts[_STARTS // 2], Spread.of(took))


def _cpu(times: int, act: Callable[[], object]) -> float:
    """CPU seconds of so many calls."""
    started = time.process_time()
    for _ in range(times):
        act()
    return time.process_time() - started


def _start(file: Path) -> float:
    """CPU seconds of `windowbox validate` from its start to its end."""
    before = os.times()
    command = [str(Path(sys.executable).with_name("windowbox")), "validate", str(file)]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, timeout=_PATIENCE)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _report(figures: ValidationFigures) -> Report:
    columns = {
        "cloud": lambda one: one.cloud,
        "Shoots checked/s": lambda one: f"{one.shoots_per_second:.0f}",
        "Shoots mutated/s": lambda one: f"{one.mutated_per_second:.0f}",
        "after the start: p50 ms": lambda one: f"{one.after_start.p50:.1f}",
        "max ms": lambda one: f"{one.after_start.max:.1f}",
        "CPU of `windowbox validate`, ms": lambda one: f"{one.started_cpu_ms:.0f}",
    }
    title = f"{figures.shoots} Shoots of each cloud, by CPU time of one process"
    return Report(figures, [table(title, figures.checked, columns)])
