"""`python -m tests.support.quick [REVISION]`: the tests that the changed files reach, for about a minute.

Changed is what differs from HEAD, or from a revision, and what Git does not know yet. A module reaches those
that import it, a file of another kind those that name it or its folder. The nearest tests come first, of
those the cheapest, by `tests/durations.json`; what does not fit is counted.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import grimp

from tests.support import scheduling
from tests.support.scheduling import Took

ROOT = Path(__file__).parents[2]
_PACKAGES = (
    "bus", "clouds", "commands", "patchers", "sandbox", "tests", "tools", "ui", "watchers", "webhooks",
    "windowbox", "workers",
)  # fmt: skip
_DOCS = "tests/unit/docs"
_HOUSE = "tests/suite/test_house.py"
"""Reads all modules outside tests."""
_BUDGET = 40.0
"""Seconds, without collecting tests and starting workers."""
_UNKNOWN = Took(wall=3.0, cpu=1.5)


@dataclass(frozen=True)
class House:
    """What imports what in a checkout, and what its modules say."""

    root: Path

    @cached_property
    def graph(self) -> grimp.ImportGraph:
        return grimp.build_graph(*_PACKAGES, cache_dir=str(self.root / ".import_linter_cache"))

    @cached_property
    def texts(self) -> dict[str, str]:
        """Of each module, with the paths that it joins written in one."""
        files = ((module, self.file(module)) for module in self.graph.modules)
        return {m: f.read_text().replace('" / "', "/") for m, f in files if f.exists()}

    def file(self, module: str) -> Path:
        path = self.root.joinpath(*module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def tests(self, below: str) -> Iterator[str]:
        """The files with tests in a folder."""
        for path in sorted((self.root / below).rglob("test_*.py")):
            yield str(path.relative_to(self.root))

    def naming(self, file: str) -> set[str]:
        """Modules that name a file, and those that name the nearest folder of it that any names."""
        path = Path(file)
        names = [name for name in (file, path.name) if "." in name[1:] or name == file]
        nearest = next(filter(None, map(self._saying, map(str, path.parents[:-2]))), set[str]())
        return nearest.union(*map(self._saying, names))

    def importing(self, module: str) -> set[str]:
        """Modules that import one that has gone."""
        package, _, name = module.rpartition(".")
        said = re.compile(
            rf"^(from|import) ({re.escape(module)}\b|{re.escape(package)} import .*\b{name}\b)", re.M
        )
        return {module for module, text in self.texts.items() if said.search(text)}

    def _saying(self, path: str) -> set[str]:
        # Where a path begins, a quote or another folder ends.
        said = re.compile(rf'["/ ]{re.escape(path)}["/ ]')
        return {module for module, text in self.texts.items() if said.search(text)}


def changed(revision: str = "HEAD") -> list[str]:
    """Files that differ from a revision, and those that Git does not know yet."""
    commands = (["diff", "--name-only", revision], ["ls-files", "--others", "--exclude-standard"])
    said = (
        subprocess.run(["git", *one], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for one in commands
    )
    return sorted({line for text in said for line in text.splitlines()})


def reached(house: House, files: Iterable[str]) -> dict[str, int]:
    """The files with tests that changed files reach: how many imports they are away."""
    modules, tests = dict[str, int](), dict[str, int]()
    for file in files:
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if file.endswith(".py") and module in house.graph.modules:
            modules[module] = 0
            if not file.startswith("tests/"):
                tests[_HOUSE] = 0
        elif file.endswith(".md"):
            tests |= dict.fromkeys(house.tests(_DOCS), 0)
        else:  # a module that has gone is named by imports
            named = house.naming(file) | house.importing(module)
            modules |= dict.fromkeys(named - modules.keys(), 1)
            if not named:
                tests |= dict.fromkeys(house.tests(_DOCS), 1)
    for module, away in distances(house.graph, modules).items():
        *folders, name = module.split(".")
        if name.startswith("test_"):
            tests[str(house.file(module).relative_to(house.root))] = away
        elif name == "conftest" and (away == 0 or len(folders) > 1):
            # The one for all tests imports half of the house: what that reaches is no hint.
            for test in house.tests("/".join(folders)):
                tests.setdefault(test, away + 1)
    return tests


def distances(graph: grimp.ImportGraph, modules: Mapping[str, int]) -> dict[str, int]:
    """How many imports each module is away that is reached."""
    found, layer, away = dict(modules), set(modules), 0
    while layer:
        away += 1
        importers = {one for module in layer for one in graph.find_modules_that_directly_import(module)}
        layer = importers - found.keys()
        found |= dict.fromkeys(layer, away)
    return found


def chosen(
    tests: Mapping[str, int], took: Mapping[str, Took], *, workers: int, budget: float = _BUDGET
) -> list[str]:
    """Those that fit: the nearest first, of those the cheapest."""
    cpus, known = os.cpu_count() or 1, {test: took.get(test, _UNKNOWN) for test in tests}
    wall = cpu = 0.0
    fitting = []
    for test in sorted(tests, key=lambda test: (tests[test], known[test].cpu, test)):
        most = Took(wall + known[test].wall, cpu + known[test].cpu)
        if max(most.wall / workers, most.cpu / cpus, known[test].wall) <= budget:
            wall, cpu = most
            fitting.append(test)
    return fitting


def main(arguments: Collection[str]) -> int:
    files = changed(*arguments)
    tests = reached(House(ROOT), files)
    workers = int(os.environ.get("JOBS", "4"))
    fitting = chosen(tests, scheduling.recorded(), workers=workers)
    left = tests.keys() - fitting
    print(f"{len(files)} changed files reach {len(tests)} files with tests; {len(fitting)} run", flush=True)
    code = 0
    if fitting:
        command = (sys.executable, "-m", "pytest", f"-n{workers}", "--dist=loadscope", *fitting)
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if left:
        print("Left out, as all would take longer than a minute; make test runs them:")
        print("\n".join(f"  {folder}: {count}" for folder, count in _by_folder(left)))
    return code


def _by_folder(files: Iterable[str]) -> list[tuple[str, int]]:
    return sorted(Counter(str(Path(file).parent) for file in files).items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
