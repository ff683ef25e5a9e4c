"""The examples of clouds that the package ships."""

from __future__ import annotations

from importlib.resources import as_file, files

import pytest

from commands.clouds import validate
from commands.clouds.documents import read_all

CLOUDS = sorted(one.name.removesuffix(".yaml") for one in (files("sandbox.shipped") / "clouds").iterdir())


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_shipped_example_is_accepted(cloud: str) -> None:
    with as_file(files("sandbox.shipped") / "clouds" / f"{cloud}.yaml") as path:
        found = validate.check(read_all([str(path)]))

    assert (found.checked, [one.problem.message for one in found.problems]) == (4, [])
