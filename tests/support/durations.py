"""What each test takes, in seconds and in seconds of CPU: a plugin of pytest.

`pytest --measure=FILE` writes them for each test: set-up, call and tear-down, with the servers that its
worker runs meanwhile. A test that uses what another has started is charged for what that does in its time.
`python -m tests.support.durations FILE` prints the dearest folders, scopes and tests; with `--record` it
writes `tests/durations.json`, by which tests are scheduled.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import scheduling
from tests.support.scheduling import Took, scope

_TICKS = os.sysconf("SC_CLK_TCK")
_MARK = "PYTEST_MEASURED_BY"
"""In the environment of what a worker starts: what ends without its parents remains known by it."""
_BRIEF = 0.02
"""In phases that take less, no server does anything worth counting."""
_DEAREST = 60


Measured = Mapping[str, Mapping[str, Took]]
"""By test, then by phase."""


class Meter:
    """In each process that runs tests."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        os.environ[_MARK] = str(self._pid)
        self._own = 0.0
        self._counted: dict[int, Process] = {}

    def pytest_collection_finish(self) -> None:
        self._own, self._counted = time.process_time(), _family(self._pid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before, self._own = self._own, time.process_time()
        spent = self._own - before
        known = self._counted.get(self._pid)
        if call.duration > _BRIEF:
            now = _family(self._pid)
            spent, self._counted = max(spent, difference(self._counted, now)), now
        elif known:
            self._counted[self._pid] = known._replace(seconds=known.seconds + spent)
        report.cpu = spent  # type: ignore[attr-defined]
        return report


class Writer:
    """In the process that sees all reports. Each is a line at once, in case that this run is interrupted."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("w", buffering=1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        took = round(report.duration, 4), round(getattr(report, "cpu", 0.0), 4)
        if not report.skipped:
            print(json.dumps([report.nodeid, report.when, *took]), file=self._file)

    def pytest_unconfigure(self) -> None:
        self._file.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--measure", metavar="FILE", type=Path, help="write there what each test takes")


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--measure"):
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Writer(file))
        if hasattr(config, "workerinput") or not config.getoption("numprocesses", 0):
            config.pluginmanager.register(Meter())


class Process(NamedTuple):
    parent: int
    seconds: float
    """Of CPU: its own, and those of the children that it has waited for."""


def difference(before: Mapping[int, Process], now: Mapping[int, Process]) -> float:
    """What was spent between. Whoever ended meanwhile is counted with who waited for it, if anybody did."""

    def lost(pid: int) -> bool:
        while pid in before:
            pid = before[pid].parent
            if pid in now:
                return False
        return True

    spent = sum(one.seconds for one in now.values()) - sum(one.seconds for one in before.values())
    return spent + sum(one.seconds for pid, one in before.items() if pid not in now and lost(pid))


def _family(root: int) -> dict[int, Process]:
    """A process, its descendants, and those that it started and whose parents have ended."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{name}/stat").read_text(errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        fields = stat.rpartition(")")[2].split()
        found[int(name)] = Process(int(fields[1]), sum(map(int, fields[11:15])) / _TICKS)
    parents = {pid: one.parent for pid, one in found.items()}
    roots = {root, *(pid for pid, parent in parents.items() if parent == 1 and _marked(pid, root))}
    return {pid: one for pid, one in found.items() if _is_below(pid, roots, parents)}


def _is_below(pid: int, roots: set[int], parents: Mapping[int, int]) -> bool:
    while pid not in roots:
        if (pid := parents.get(pid, 0)) == 0:
            return False
    return True


def _marked(pid: int, root: int) -> bool:
    try:
        return f"{_MARK}={root}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # it has ended meanwhile


def read(file: Path) -> Measured:
    measured: dict[str, dict[str, Took]] = defaultdict(dict)
    for line in file.read_text().splitlines():
        test, phase, *took = json.loads(line)
        measured[test][phase] = Took(*took)
    return measured


def total(phases: Mapping[str, Took]) -> Took:
    return Took(sum(took.wall for took in phases.values()), sum(took.cpu for took in phases.values()))


def summary(measured: Measured) -> Iterable[str]:
    """Folders, scopes and tests, the dearest in CPU first."""
    tests = {test: total(phases) for test, phases in measured.items()}
    yield from _table("folder", tests, _folder)
    yield from _table("scope", tests, scope, most=_DEAREST)
    yield from _table("test", tests, str, most=_DEAREST)


def _folder(test: str) -> str:
    return "/".join(test.partition("::")[0].split("/")[1:-1][:2])


def _table(
    what: str, tests: Mapping[str, Took], key: Callable[[str], str], most: int | None = None
) -> Iterable[str]:
    rows: dict[str, list[Took]] = defaultdict(list)
    for test, took in tests.items():
        rows[key(test)].append(took)
    sums = [
        (sum(took.cpu for took in all), sum(took.wall for took in all), len(all), name)
        for name, all in rows.items()
    ]
    yield f"{'CPU s':>8} {'wall s':>8} {'tests':>6}  {what}"
    for cpu, wall, count, name in sorted(sums, reverse=True)[:most]:
        yield f"{cpu:8.1f} {wall:8.1f} {count:6}  {name}"
    yield f"{sum(row[0] for row in sums):8.1f} {sum(row[1] for row in sums):8.1f} {len(tests):6}  in all"
    yield ""


def recorded(measured: Measured, before: Mapping[str, list[float]]) -> str:
    """`tests/durations.json`: wall and CPU seconds of each file, and its number of tests."""
    files: dict[str, list[Took]] = defaultdict(list)
    for test, phases in measured.items():
        if "call" in phases:  # what a test would take that was skipped, nobody knows
            files[test.partition("::")[0]].append(total(phases))
    sums = {
        file: [round(sum(took.wall for took in all), 1), round(sum(took.cpu for took in all), 1), len(all)]
        for file, all in files.items()
    }
    known = {file: row for file, row in {**before, **sums}.items() if Path(file).exists()}
    rows = (f"{json.dumps(file)}: {json.dumps(row)}" for file, row in sorted(known.items()))
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.durations")
    parser.add_argument("file", type=Path, help="what pytest --measure=FILE wrote")
    parser.add_argument("--record", action="store_true", help="write tests/durations.json")
    given = parser.parse_args(arguments)
    measured = read(given.file)
    print("\n".join(summary(measured)))
    if given.record:
        before = json.loads(scheduling.DURATIONS.read_text()) if scheduling.DURATIONS.exists() else {}
        scheduling.DURATIONS.write_text(recorded(measured, before))


if __name__ == "__main__":
    main(sys.argv[1:])
