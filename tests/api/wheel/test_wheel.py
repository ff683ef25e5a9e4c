"""The wheel, installed into an environment of its own and used outside of the checkout."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from sandbox import stages
from tests.support import servers, wheels
from tests.support.commandline import ROOT, CommandLine

OURS = {
    "bus",
    "clouds",
    "commands",
    "patchers",
    "sandbox",
    "ui",
    "watchers",
    "webhooks",
    "windowbox",
    "workers",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources, built = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("built")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in wheels.SOURCES:
        found = ROOT / name
        if found.is_dir():
            shutil.copytree(found, sources / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(found, sources / name)
    return wheels.built(sources, built)


@pytest.fixture(scope="module")
def windowbox(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The commands of an environment that has the wheel, and the libraries of this environment."""
    program = wheels.installed(wheel, tmp_path_factory.mktemp("environment"))
    home, elsewhere = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("elsewhere")
    made = CommandLine(home, elsewhere, (str(program),), {"PYTHONPATH": ""})
    with made.ended():
        yield made


def test_the_wheel_holds_the_packages_and_their_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = archive.namelist()
    tops = {name.partition("/")[0] for name in held if ".dist-info/" not in name}
    assert tops == OURS
    for kind in ("crds", "examples", "binaries"):
        source = ROOT / "sandbox" / "shipped" / kind
        files = (
            Path(folder, file) for folder, _, names in os.walk(source, followlinks=True) for file in names
        )
        wanted = {f"sandbox/shipped/{kind}/{file.relative_to(source)}" for file in files}
        assert wanted == {name for name in held if name.startswith(f"sandbox/shipped/{kind}/")}


def test_all_imports_are_declared(wheel: Path) -> None:
    """In the wheel, or by what the wheel declares."""
    with zipfile.ZipFile(wheel) as archive:
        sources = [archive.read(name) for name in archive.namelist() if name.endswith(".py")]
        [about] = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")]
    required = re.findall("^Requires-Dist: (.*)$", about, re.MULTILINE)
    installed = wheels.required([one for one in required if 'extra == "dev"' not in one])
    distributions = metadata.packages_distributions()
    imported = {name.partition(".")[0] for source in sources for name in _imports(ast.parse(source))}
    missing = {
        name
        for name in imported - set(sys.stdlib_module_names) - OURS
        if installed.isdisjoint(map(wheels.name_of, distributions.get(name, ())))
    }
    assert missing == set()


def test_help_and_version(windowbox: CommandLine) -> None:
    assert "windowbox doctor" in windowbox("--help")
    assert windowbox("--version").startswith("windowbox, version")


@pytest.mark.long  # the data are in the wheel, and all imports are declared
def test_a_sandbox_runs(windowbox: CommandLine) -> None:
    servers.need(*stages.PROGRAMS)
    windowbox("up", "--watchers=1", "--workers=1", "--patchers=1", "--nodes=0")
    found = {one["what"]: one for one in json.loads(windowbox("doctor", "-o", "json", expect=None))}
    assert found["sandbox 'default'"]["verdict"] == "ok"
    assert found["rights of the worker"]["verdict"] == "ok"
    assert found["pool dnsrecord"]["verdict"] == "ok"
    assert "worker-1" in windowbox("status")
    windowbox("down")
    assert "is not running" in windowbox("status", expect=None)


@pytest.mark.parametrize("command", [("bench", "bus", "-n", "200"), ("gardener", "build")])
def test_commands_of_a_checkout_say_so(windowbox: CommandLine, command: tuple[str, ...]) -> None:
    assert "runs from a checkout" in windowbox(*command, expect=1)


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
