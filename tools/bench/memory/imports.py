"""Memory that imports take. `python -m tools.bench.memory.imports MODULE …` prints it as JSON, by package.

A package counts what its own modules take, not the packages that they import.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections import Counter
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_PAGE = os.sysconf("SC_PAGESIZE")
_LIBRARY = "Python's library"


def _private() -> int:
    """Bytes of this process that are no pages of files."""
    fields = Path("/proc/self/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * _PAGE


class _Measuring:
    """Finds modules as the finders before, and measures what each takes."""

    def __init__(self) -> None:
        self._finders = list(sys.meta_path)
        self._inner: list[int] = []
        """Bytes that the modules took which a module imported, for each that is being imported."""
        self.taken = Counter[str]()

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        for finder in self._finders:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    self._measure(name.partition(".")[0], spec.loader)
                return spec
        return None

    def _measure(self, package: str, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            before = _private()
            self._inner.append(0)
            try:
                execute(module)
            finally:
                took, inner = _private() - before, self._inner.pop()
                self.taken[package] += took - inner
                if self._inner:
                    self._inner[-1] += took

        # Loaders of built-in modules are classes, which all of these share: they take nothing.
        if not isinstance(loader, type):
            loader.exec_module = exec_module


def main(modules: list[str]) -> None:
    """Import the modules, and print the bytes that each package took, and all of this process."""
    measuring, start = _Measuring(), _private()
    sys.meta_path[:] = [measuring]
    for module in modules:
        importlib.import_module(module)
    found = Counter[str]({"Python itself": start})
    for package, bytes_ in measuring.taken.items():
        found[_LIBRARY if package in sys.stdlib_module_names else package] += bytes_
    print(json.dumps({"packages": found, "all": _private()}))


if __name__ == "__main__":
    main(sys.argv[1:])
