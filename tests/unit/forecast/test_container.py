"""The container of deploy/compose.demo.yaml is one in which all of the demo is foretold."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from sandbox.programs import packages
from sandbox.shipped import MODULES

DEPLOY = Path(__file__).parents[3] / "deploy"
DEMO = yaml.safe_load((DEPLOY / "compose.demo.yaml").read_text())["services"]["demo"]
DOCKERFILE = (DEPLOY / "Dockerfile.demo").read_text()
IGNORED = (DEPLOY / "Dockerfile.demo.dockerignore").read_text().splitlines()


def test_it_may_have_real_nodes() -> None:
    """A privileged one has capabilities, writable cgroups and settings, and the kernel's log."""
    assert DEMO["privileged"] is True


def test_data_of_the_sandbox_is_on_a_volume() -> None:
    [(_, folder)] = [volume.split(":") for volume in DEMO["volumes"]]
    variables = dict(re.findall(r"(\w+)=(/data\S*)", DOCKERFILE))
    assert set(variables) == {"WINDOWBOX_HOME", "WINDOWBOX_CACHE", "GOCACHE", "GOMODCACHE"}
    assert all(value.startswith(f"{folder}/") for value in variables.values())


def test_no_package_is_left_to_install_at_each_start() -> None:
    wanted = {*packages._BIND.values(), *packages._NODES.values(), "containernetworking-plugins"}
    assert wanted <= set(re.findall(r"[\w-]+", DOCKERFILE))


def test_what_the_image_is_made_of_is_not_ignored() -> None:
    root = DEPLOY.parent
    kept = [line.removeprefix("!") for line in IGNORED if line.startswith("!")]
    assert [name for name in kept if not (root / name).exists()] == []
    shipped = [path.resolve().relative_to(root) for path in MODULES.parent.iterdir() if path.is_symlink()]
    assert {str(path) for path in shipped} <= set(kept)
    assert {"Makefile", "constraints.txt", "pyproject.toml"} <= set(kept)
