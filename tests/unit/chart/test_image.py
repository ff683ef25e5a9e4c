"""What .dockerignore lets into the image."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LET_IN = {
    line.removeprefix("!")
    for line in (ROOT / ".dockerignore").read_text().splitlines()
    if line.startswith("!")
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [name.removesuffix("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]]
LINKS = sorted(one for one in (ROOT / "sandbox" / "shipped").iterdir() if one.is_symlink())


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_let_in(package: str) -> None:
    assert package in LET_IN


@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.name)
def test_what_shipped_links_is_let_in(link: Path) -> None:
    assert str(link.resolve().relative_to(ROOT)) in LET_IN
