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
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path

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
        self._own = self._counted = 0.0

    def pytest_collection_finish(self) -> None:
        self._own = _own()
        self._counted = self._all()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before, self._own = self._own, _own()
        spent = self._own - before
        if call.duration > _BRIEF:
            # What has ended and nobody waited for is in the sum no longer.
            now = self._all()
            spent, self._counted = max(spent, now - self._counted), now
        else:
            self._counted += spent
        report.cpu = spent  # type: ignore[attr-defined]
        return report

    def _all(self) -> float:
        """With what has ended and was waited for, and what lives."""
        times = os.times()
        return self._own + times.children_user + times.children_system + _of_descendants(self._pid)


class Writer:
    """In the process that sees all reports. Each is a line at once, in case that this run is interrupted."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("w", buffering=1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        took = round(report.duration, 4), round(getattr(report, "cpu", 0.0), 4)
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


def _own() -> float:
    """The CPU seconds of this process."""
    times = os.times()
    return times.user + times.system


def _of_descendants(root: int) -> float:
    """The CPU seconds of those that live, and of those that they have waited for."""
    parents, seconds = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{name}/stat").read_text(errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        fields = stat.rpartition(")")[2].split()
        parents[int(name)] = int(fields[1])
        seconds[int(name)] = sum(map(int, fields[11:15])) / _TICKS
    roots = {root, *(pid for pid, parent in parents.items() if parent == 1 and _marked(pid, root))}
    return sum(seconds[pid] for pid in parents if pid != root and _is_below(pid, roots, parents))


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
