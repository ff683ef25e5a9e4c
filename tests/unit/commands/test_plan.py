"""`windowbox plan`, as people and programs see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from commands.cli import cli
from tests.support.cloudobjects import CLOUDS, FOLDER, example, provider

Shoot = dict[str, Any]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["plan", *map(str, arguments)])


@pytest.fixture
def update(tmp_path: Path) -> Callable[..., Path]:
    """A file with the example of a cloud, whose Shoot is changed."""

    def write(cloud: str, change: Callable[[Shoot], object], only: str = "") -> Path:
        objects = example(cloud)
        change(next(one for one in objects if one["kind"] == "Shoot"))
        file = tmp_path / "new.yaml"
        file.write_text(yaml.safe_dump_all(one for one in objects if one["kind"] == (only or one["kind"])))
        return file

    return write


def minor(shoot: Shoot) -> None:
    shoot["spec"]["kubernetes"]["version"] = "1.32.1"


def region(shoot: Shoot) -> None:
    shoot["spec"]["region"] = "moon"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_an_update_of_a_shoot_of_each_cloud_is_explained(cloud: str, update: Callable[..., Path]) -> None:
    def more_machines(shoot: Shoot) -> None:
        pool = provider(shoot)["workers"][0]
        pool["minimum"] = pool["maximum"] = 9

    shown = run(FOLDER / f"{cloud}.yaml", update(cloud, more_machines))

    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"Shoot garden-dev/on-{cloud} ({cloud}):\n  machines are added: ")


def test_each_effect_has_field_values_pools_and_reason(update: Callable[..., Path]) -> None:
    shown = run(FOLDER / "aws.yaml", update("aws", minor))

    assert shown.stdout.splitlines() == [
        "Shoot garden-dev/on-aws (aws):",
        "  cannot be taken back: spec.kubernetes.version",
        "    the way back is refused: Forbidden: a version cannot be lowered: leave it at 1.32.1",
        "  nodes are rolled: spec.kubernetes.version: 1.31.1 → 1.32.1",
        "    pool small; it counts in the hash that names the MachineClasses (ALL-Z4)",
    ]


def test_programs_get_json(update: Callable[..., Path]) -> None:
    shown = run(FOLDER / "aws.yaml", update("aws", minor), "-o", "json")

    [one] = json.loads(shown.stdout)["updates"]
    assert {name: one[name] for name in ("kind", "namespace", "name", "type")} == {
        "kind": "Shoot",
        "namespace": "garden-dev",
        "name": "on-aws",
        "type": "aws",
    }
    assert one["effects"][1] == {
        "kind": "rolls",
        "path": "spec.kubernetes.version",
        "old": "1.31.1",
        "new": "1.32.1",
        "why": "it counts in the hash that names the MachineClasses",
        "rule": "ALL-Z4",
        "pools": ["small"],
    }


@pytest.mark.parametrize(
    ("change", "options", "code"),
    [
        pytest.param(minor, [], 0, id="rolls"),
        pytest.param(minor, ["--fail-on", "rolls"], 1, id="rolls-must-not-happen"),
        pytest.param(minor, ["--fail-on", "in-place"], 1, id="worse-than-in-place"),
        pytest.param(region, [], 1, id="refused"),
        pytest.param(lambda shoot: None, ["--fail-on", "in-place"], 0, id="nothing"),
    ],
)
def test_the_exit_code_tells_what_must_not_happen(
    change: Callable[[Shoot], object], options: list[str], code: int, update: Callable[..., Path]
) -> None:
    assert run(*options, FOLDER / "aws.yaml", update("aws", change)).exit_code == code


def test_other_objects_may_be_in_one_of_the_files(update: Callable[..., Path]) -> None:
    shown = run(FOLDER / "openstack.yaml", update("openstack", minor, only="Shoot"))

    assert "nodes are rolled" in shown.stdout


def test_an_object_that_no_file_has_is_named(tmp_path: Path, update: Callable[..., Path]) -> None:
    new = update("aws", minor, only="Shoot")
    old = new.rename(tmp_path / "old.yaml")
    update("aws", minor, only="Shoot")

    shown = run(old, new)

    assert (shown.exit_code, shown.stdout) == (3, "")
    assert "Shoot garden-dev/on-aws needs CloudProfile aws: add the files that have them" in shown.stderr
    assert run(old, new, FOLDER / "aws.yaml").exit_code == 0


def test_a_shoot_without_an_old_version_is_an_error(update: Callable[..., Path]) -> None:
    shown = run(FOLDER / "aws.yaml", update("gcp", minor))

    assert shown.exit_code == 1
    assert "no Shoot of the same namespace and name; NEW has Shoot garden-dev/on-gcp" in shown.stderr


def test_a_shoot_of_a_type_that_is_no_cloud_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "local.yaml"
    file.write_text("kind: Shoot\nmetadata: {name: a}\nspec: {provider: {type: local}}\n")

    shown = run(file, file)

    assert shown.exit_code == 1
    assert "there is no cloud 'local'" in shown.stderr
