"""The programs of Gardener, without compiling them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sandbox.programs.binaries import Program
from tools.gardener import programs
from windowbox.errors import Missing

_ALL = [*programs.PROGRAMS.values(), *programs.TESTS.values()]


@pytest.mark.parametrize("program", _ALL, ids=lambda program: program.name)
def test_the_version_is_that_of_the_module_that_has_the_package(program: Program) -> None:
    assert program.module
    required = re.findall(
        r"^\s*(?:require )?(\S+) v(\S+)", (Path(program.module) / "go.mod").read_text(), re.M
    )
    found = [version for module, version in required if f"{program.package}/".startswith(f"{module}/")]
    if program.package.startswith((".", "windowbox/")):
        assert found == []
    elif program.package.startswith("istio.io/"):
        assert found  # its versions are dates
    else:
        assert program.version in found


def test_what_is_not_built_says_how_to_build_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDOWBOX_CACHE", str(tmp_path))
    with pytest.raises(Missing, match=r"run `windowbox gardener build`$"):
        programs.path("gardenlet")
    with pytest.raises(Missing, match=r"run `windowbox gardener build --tests`$"):
        programs.path("kube-apiserver-1.34")
