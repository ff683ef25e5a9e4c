"""Samples of all processes of windowbox, phase by phase."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from tools.bench.profiling import sitecustomize
from tools.bench.report import Phase, table

_TOTAL = "sum of the steps"
_KERNEL = "windowbox's CPU, by the kernel"


@dataclass(frozen=True)
class Samples:
    """The folder to which processes write their samples."""

    folder: Path

    def counts(self) -> Counter[str]:
        """Samples of each step so far."""
        found = Counter[str]()
        for file in self.folder.iterdir():
            found.update(file.read_text().splitlines())
        return found


@contextlib.contextmanager
def sampled() -> Iterator[Samples]:
    """Processes that are started in this block write samples."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", sitecustomize.FOLDER)}
    with tempfile.TemporaryDirectory(prefix="windowbox-samples-") as folder:
        paths = [str(Path(sitecustomize.__file__).parent), *filter(None, [before["PYTHONPATH"]])]
        os.environ["PYTHONPATH"], os.environ[sitecustomize.FOLDER] = os.pathsep.join(paths), folder
        try:
            yield Samples(Path(folder))
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def by_step(counts: Mapping[str, int], phase: Phase) -> dict[str, float]:
    """Milliseconds of each step for each object of the phase."""
    each = 1000 * sitecustomize.INTERVAL / phase.count
    return {step: round(count * each, 3) for step, count in counts.items()}


def steps_table(found: Sequence[tuple[Phase, Mapping[str, float]]]) -> Table:
    """Milliseconds of each step for each object, by phase, with their sum."""
    steps = {step: max(each.get(step, 0.0) for _, each in found) for _, each in found for step in each}
    rows = [*sorted(steps, key=lambda one: -steps[one]), _TOTAL, _KERNEL]

    def cell(row: str, phase: Phase, each: Mapping[str, float]) -> str:
        if row in (_TOTAL, _KERNEL):
            return f"{sum(each.values()) if row == _TOTAL else phase.our_cpu_ms:.2f}"
        return f"{each.get(row, 0.0):.2f}"

    columns = {
        phase.name: lambda row, phase=phase, each=each: cell(row, phase, each) for phase, each in found
    }
    return table("Steps, CPU ms of windowbox for each object", rows, {"step": str, **columns})
