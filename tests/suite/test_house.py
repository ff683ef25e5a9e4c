"""The house stays in order (decision 39). `python -m tools.house` prints its figures."""

from __future__ import annotations

import pytest

from tools import house

MODULES = house.modules()


def test_no_folder_is_crowded() -> None:
    assert house.crowded(MODULES) == {}, (
        f"at most {house.MOST_MODULES} modules in a folder: make a room of some"
    )


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_no_function_is_too_long(module: house.Module) -> None:
    long = {one.name: one.lines for one in module.functions if one.lines > house.MOST_LINES}
    assert long == {}, f"at most {house.MOST_LINES} lines in a function"


def test_a_module_of_a_pool_names_its_package() -> None:
    assert [
        str(module.path) for module in MODULES if module.path.stem in ("pool", "runs", "wanted", "mapping")
    ] == ["bus/workqueue/pool.py"]
