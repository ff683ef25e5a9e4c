"""`windowbox validate`, as people and programs see it."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from commands.cli import cli
from tests.support import cloudobjects
from tests.support.cases import cases
from tests.support.cloudobjects import CLOUDS, example, provider

Objects = list[dict[str, Any]]


def run(*arguments: object, given: bytes = b"") -> Result:
    return CliRunner().invoke(cli, ["validate", *map(str, arguments)], input=given)


def dumped(*objects: dict[str, Any]) -> bytes:
    return yaml.safe_dump_all(objects).encode()


def shoot_of(objects: Objects) -> dict[str, Any]:
    return next(one for one in objects if one["kind"] == "Shoot")


def test_good_objects_of_all_clouds_are_accepted_together() -> None:
    shown = run(*sorted(cloudobjects.FOLDER.glob("*.yaml")))
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr == "24 objects checked, 0 problems\n"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_bad_shoot_of_each_cloud_is_refused(cloud: str) -> None:
    objects = example(cloud)
    provider(shoot_of(objects))["workers"][0]["providerConfig"] = {"kind": "Nonsense"}
    provider(shoot_of(objects))["infrastructureConfig"] = {"kind": "Nonsense"}
    shown = run("-", given=dumped(*objects))
    assert shown.exit_code == 1
    assert f"Shoot garden-dev/on-{cloud}: " in shown.stdout


def test_a_problem_is_shown_with_file_line_object_and_path(tmp_path: Path) -> None:
    file = tmp_path / "shoot.yaml"
    text = (cloudobjects.FOLDER / "aws.yaml").read_text().replace("workers: 10.250", "workers: 10.251")
    file.write_text(text)
    line = 1 + text[: text.index("workers: 10.251")].count("\n")
    shown = run(file)
    assert shown.exit_code == 1
    first, *_ = shown.stdout.splitlines()
    assert first == (
        f"{file}:{line}: Shoot garden-dev/on-aws: "
        'networks.zones[0].workers: Invalid value: "10.251.0.0/19": '
        'must be a subset of "networking.nodes" ("10.250.0.0/16"): move it there'
    )
    assert shown.stderr == "4 objects checked, 4 problems\n"


@pytest.mark.parametrize("cloud", ["alicloud", "aws", "azure", "gcp", "openstack"])
def test_an_unknown_field_is_shown_at_its_line(cloud: str, tmp_path: Path) -> None:
    file = tmp_path / "shoot.yaml"
    text = (cloudobjects.FOLDER / f"{cloud}.yaml").read_text()
    start = text.index("cidr: 10.250.0" if cloud == "azure" else "workers: 10.250")
    file.write_text(f"{text[:start]}wokers: 1, {text[start:]}")
    shown = run(file)
    assert shown.exit_code == 1
    assert shown.stdout.startswith(f"{file}:{1 + text[:start].count(chr(10))}: ")
    assert "wokers is unknown" in shown.stdout


def test_programs_get_json() -> None:
    objects = example("gcp")
    del provider(shoot_of(objects))["controlPlaneConfig"]["zone"]
    other = {**shoot_of(example("gcp")), "spec": {"provider": {"type": "local"}}}
    other["metadata"] = {"name": "on-local"}
    shown = run("-o", "json", "-", given=dumped(*objects, other))
    assert shown.exit_code == 1
    report = json.loads(shown.stdout)
    assert {key: report[key] for key in ("checked", "skipped", "missing")} == {
        "checked": 4,
        "skipped": [
            {
                "object": "Shoot on-local",
                "reason": "is of type local; checked are alicloud, aws, azure, equinixmetal, gcp, openstack",
            }
        ],
        "missing": [],
    }
    path = "spec.provider.controlPlaneConfig.zone"
    assert [(one["name"], one["path"], one["type"]) for one in report["problems"]] == [
        ("on-gcp", path, "Required"),
        ("on-gcp", path, "Invalid"),
    ]


@pytest.mark.parametrize("output", ["text", "json"])
def test_accepted_objects_end_with_zero(output: str) -> None:
    assert run("-o", output, cloudobjects.FOLDER / "aws.yaml").exit_code == 0


def test_lists_and_files_find_each_other(tmp_path: Path) -> None:
    profile, shoot = (cloudobjects.one("azure", kind) for kind in ("CloudProfile", "Shoot"))
    (tmp_path / "profile.yaml").write_bytes(dumped({"kind": "List", "items": [profile]}))
    (tmp_path / "shoot.json").write_text(json.dumps({"kind": "ShootList", "items": [shoot, shoot]}))
    shown = run(tmp_path / "shoot.json", tmp_path / "profile.yaml")
    assert (shown.exit_code, shown.stderr) == (0, "3 objects checked, 0 problems\n")


def test_a_missing_cloudprofile_is_named() -> None:
    shown = run("-", given=dumped(cloudobjects.shoot("azure")))
    assert shown.exit_code == 1
    assert "there is no CloudProfile 'azure'" in shown.stdout
    assert shown.stderr == (
        "in no file: CloudProfile azure: add the files that have them\n1 object checked, 1 problem\n"
    )


_PROFILE = {"apiVersion": "core.gardener.cloud/v1beta1", "kind": "NamespacedCloudProfile"}
_METADATA = {"name": "x", "namespace": "n"}


@cases(
    "given said",
    (
        "type-unknown",
        {
            **cloudobjects.shoot("aws"),
            "metadata": _METADATA,
            "spec": {"provider": {"type": "local"}},
        },
        "skipped: Shoot n/x is of type local; checked are alicloud, aws, azure, equinixmetal, gcp, openstack",
    ),
    (
        "no-type",
        {**cloudobjects.shoot("aws"), "metadata": _METADATA, "spec": None},
        "skipped: Shoot n/x names no type; checked are alicloud, aws, azure, equinixmetal, gcp, openstack",
    ),
    (
        "type-no-text",
        {**cloudobjects.shoot("aws"), "metadata": _METADATA, "spec": {"provider": {"type": ["aws"]}}},
        "skipped: Shoot n/x names no type; checked are alicloud, aws, azure, equinixmetal, gcp, openstack",
    ),
    (
        "parent-missing",
        {**_PROFILE, "metadata": _METADATA, "spec": {"parent": {"kind": "CloudProfile", "name": "p"}}},
        "in no file: CloudProfile p: add the files that have them",
    ),
    ("kind-unknown", {"apiVersion": "v1", "kind": "ConfigMap"}, "skipped: 1 object of other kinds"),
    ("group-unknown", {"apiVersion": "a/v1", "kind": "Shoot"}, "skipped: 1 object of other kinds"),
    ("secret", {"apiVersion": "v1", "kind": "Secret", "data": {}}, "skipped: 1 object of other kinds"),
)
def test_what_is_not_checked_is_named(given: dict[str, Any], said: str) -> None:
    shown = run("-", given=dumped(given))
    assert shown.exit_code == 0
    assert said in shown.stderr.splitlines()
    assert shown.stderr.splitlines()[-1] == "0 objects checked, 0 problems"


def test_many_skipped_objects_are_counted() -> None:
    shoots = [{**cloudobjects.shoot("aws"), "metadata": {"name": f"s{i}"}, "spec": {}} for i in range(25)]
    lines = run("-", given=dumped(*shoots)).stderr.splitlines()
    assert lines[20:] == ["skipped: 5 more objects", "0 objects checked, 0 problems"]


_BAD: dict[str, Callable[[Any], None]] = {
    "Secret": lambda one: one["data"].update({"username": "no base64!", "password": None}),
    "CredentialsBinding": lambda one: one["credentialsRef"].update(kind="WorkloadIdentity"),
    "CloudProfile": lambda one: one["spec"]["providerConfig"].pop("keystoneURL"),
}


@pytest.mark.parametrize("kind", sorted(_BAD))
def test_other_objects_than_shoots_are_checked(kind: str) -> None:
    objects = example("openstack")
    for one in objects:
        if one["kind"] == kind:
            _BAD[kind](one)
    shown = run("-", given=dumped(*objects))
    assert shown.exit_code == 1
    assert f": {kind} " in shown.stdout


def test_values_of_secrets_are_never_shown() -> None:
    objects = example("openstack")
    secret = next(one for one in objects if one["kind"] == "Secret")
    secret["data"] = dict.fromkeys(("domainName", "password", "authURL"), "c2VjcmV0IHZhbHVl")
    shown = run("-o", "json", "-", given=dumped(*objects))
    assert shown.exit_code == 1
    assert "secret value" not in shown.output
    assert "c2VjcmV0IHZhbHVl" not in shown.output


@cases(
    "spec",
    ("shoot-as-list", []),
    ("numbers", {"provider": {"type": "aws", "workers": 7}, "cloudProfile": {"name": 3}}),
    ("labels", {"provider": {"type": "azure", "workers": [{"labels": {"a": None}}]}}),
    ("nothing", None),
)
def test_a_shoot_of_any_form_gets_an_answer(spec: object) -> None:
    shown = run("-", given=dumped({**cloudobjects.shoot("aws"), "metadata": {"labels": 3}, "spec": spec}))
    assert shown.exit_code in (0, 1)
    assert shown.exception is None or isinstance(shown.exception, SystemExit)


@cases(
    "arguments code",
    ("no-file", [], 2),
    ("missing-file", ["/nowhere/shoot.yaml"], 3),
    ("no-yaml", ["-"], 1),
)
def test_failures_have_codes_of_their_own(arguments: list[str], code: int) -> None:
    assert run(*arguments, given=b"a: [").exit_code == code


@pytest.mark.parametrize("cloud", [one for one in CLOUDS if one != "equinixmetal"])
@pytest.mark.parametrize("written", ["as text", "in lines"])
def test_secrets_are_read_as_an_api_server_reads_them(cloud: str, written: str) -> None:
    objects = example(cloud)
    secret = next(one for one in objects if one["kind"] == "Secret")
    if written == "as text":
        data = secret.pop("data")
        secret["stringData"] = {name: b64decode(one).decode() for name, one in data.items()}
    else:
        secret["data"] = {name: f"{one[:8]}\n{one[8:]}\n" for name, one in secret["data"].items()}
    shown = run("-", given=dumped(*objects))
    assert (shown.exit_code, shown.stdout) == (0, "")
