"""The script of a spec, its Secret, and the status."""

from __future__ import annotations

import pytest

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.errors import Malformed
from windowbox.models.gardener.operatingsystemconfig import OperatingSystemConfigSpec
from windowbox.models.objects import Object
from workers.kinds.operatingsystemconfig import operatingsystemconfigpool

SED = (
    's/^PRETTY_NAME="[^"]*"/PRETTY_NAME="Machine Image Version 2.0.0 '
    '(version overwritten for tests, check VERSION_ID for actual version)"/'
)


def spec(**given: object) -> OperatingSystemConfigSpec:
    return OperatingSystemConfigSpec.model_validate({"type": "local", "purpose": "reconcile", **given})


@rule("X-6", "X-7", "X-8", "C.2")
def test_existing_machines_get_a_unit_and_rename_their_system() -> None:
    updates = {"operatingSystemVersion": "2.0.0", "kubelet": "1.36.0"}
    content = (
        "[Unit]\nWants=systemd-tmpfiles-setup.service\nAfter=systemd-tmpfiles-setup.service\n"
        "[Install]\nWantedBy=multi-user.target"
    )
    drop_in = {"name": "dependencies.conf", "content": content}
    assert operatingsystemconfigpool.kept(spec(inPlaceUpdates=updates)) == {
        "extensionUnits": [{"name": "systemd-user-sessions.service", "dropIns": [drop_in]}],
        "extensionFiles": None,
        "inPlaceUpdates": {"osUpdate": {"command": "sed", "args": ["-i", "-E", SED, "/etc/os-release"]}},
    }


@rule("X-5")
def test_reports_remove_fields_of_the_other_purpose() -> None:
    assert operatingsystemconfigpool.kept(spec())["inPlaceUpdates"] is None
    assert operatingsystemconfigpool.provisioned("shoot--a", "osc-result-a") == {
        "cloudConfig": {"secretRef": {"name": "osc-result-a", "namespace": "shoot--a"}},
        "extensionUnits": None,
        "extensionFiles": None,
        "inPlaceUpdates": None,
    }


@cases(
    "name, reported, result",
    {
        "X-4-new": ("a", None, "osc-result-a"),
        "X-4-reported": ("a", "former", "former"),
        "X-4-nothing-reported": ("a", "", "osc-result-a"),
    },
)
def test_the_secret_keeps_its_name(name: str, reported: str | None, result: str) -> None:
    status = {} if reported is None else {"cloudConfig": {"secretRef": {"name": reported}}}
    assert (
        operatingsystemconfigpool.result_name(Object({"metadata": {"name": name}, "status": status}))
        == result
    )


@cases(
    "name, reported, complaint",
    {
        "too-long": ("a" * 250, "", r"^metadata\.name is "),
        "another-path": ("a", "../b", r"^status\.cloudConfig\.secretRef\.name is '\.\./b'"),
    },
)
def test_an_invalid_name_of_the_secret_is_refused(name: str, reported: str, complaint: str) -> None:
    status = {"cloudConfig": {"secretRef": {"name": reported}}}
    with pytest.raises(Malformed, match=complaint):
        operatingsystemconfigpool.result_name(Object({"metadata": {"name": name}, "status": status}))


@rule("X-2")
def test_scripts_start_all_units_and_write_the_files_of_all_hosts() -> None:
    unit = {"name": "a.service", "enable": False, "command": "stop", "content": "", "filePaths": ["/a"]}
    hosts = [
        {"path": "/a", "hostName": host, "content": {"inline": {"encoding": "", "data": host}}}
        for host in ("one", "two")
    ]
    cri = {"name": "containerd", "cgroupDriver": "systemd"}
    given = spec(purpose="provision", units=[unit], files=hosts, criConfig=cri)
    plain = spec(
        purpose="provision",
        units=[{"name": "a.service", "content": ""}],
        files=[{"path": "/a", "content": file["content"]} for file in hosts],
    )
    made = operatingsystemconfigpool.script(given, lambda _: b"")
    assert made == operatingsystemconfigpool.script(plain, lambda _: b"")
    assert b"systemctl enable 'a.service' && systemctl restart --no-block 'a.service'\n" in made


def test_a_script_too_large_for_a_secret_is_refused() -> None:
    content = {"inline": {"encoding": "", "data": "x" * 800_000}}
    large = spec(purpose="provision", files=[{"path": "/a", "content": content}])
    with pytest.raises(Malformed, match="a Secret holds 1048576"):
        operatingsystemconfigpool.script(large, lambda _: b"")
