"""The image of windowbox itself."""

from __future__ import annotations

import tomllib

from tools.release import ownimage
from tools.release.building import ROOT


def test_the_image_has_all_packages_of_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {f"{name}*" for name in ownimage.PACKAGES} == {*found}
