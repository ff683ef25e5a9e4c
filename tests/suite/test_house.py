"""The house stays in order (decision 39). `python -m tools.house` prints its figures."""

from __future__ import annotations

import re

from tools import house

MODULES = house.modules()


def test_no_folder_is_crowded() -> None:
    assert house.crowded(MODULES) == {}, (
        f"at most {house.MOST_MODULES} modules in a folder: make a room of some"
    )


def test_no_function_is_too_long() -> None:
    long = {
        f"{module.name}.{one.name}": one.lines
        for module in MODULES
        for one in module.functions
        if one.lines > house.MOST_LINES
    }
    assert long == {}, f"at most {house.MOST_LINES} lines in a function"


def test_a_module_of_a_pool_names_its_package() -> None:
    assert [
        str(module.path) for module in MODULES if module.path.stem in ("pool", "runs", "wanted", "mapping")
    ] == ["bus/workqueue/pool.py"]


def _catches_all(module: house.Module) -> list[str]:
    """The lines that catch every exception, without a comment on what may arrive, there or one line below."""
    lines = module.text.splitlines()
    return [
        f"{number}: {line.strip()}"
        for number, line in enumerate(lines, 1)
        if re.search(r"except Exception\b|suppress\(Exception\)", line)
        and "#" not in line
        and not lines[number].lstrip().startswith("#")
    ]


def test_whoever_catches_every_exception_says_which_may_arrive() -> None:
    assert {module.name: found for module in MODULES if (found := _catches_all(module))} == {}
