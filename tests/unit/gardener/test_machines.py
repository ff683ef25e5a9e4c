"""The image of a machine that runs systemd, without booting it."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sandbox.nodes.images import Image
from tools.gardener.machines import systemdimage
from windowbox.errors import Missing

_UNIT = "usr/lib/systemd/system/"
_COMMAND = re.compile(r"^Exec\w+=[-@:+!]*(/\S+)", re.M)


@pytest.fixture(scope="module")
def image() -> Image:
    try:
        return systemdimage.image("machine:1")
    except Missing as error:
        pytest.skip(str(error))


def test_each_unit_finds_its_programs(image: Image) -> None:
    wanted = {
        command
        for name, text in image.files.items()
        if name.startswith(_UNIT) and isinstance(text, str)
        for command in _COMMAND.findall(text)
    }
    assert len(wanted) > 10
    assert sorted(one for one in wanted if not _has(image, one)) == ["/etc/machine/userdata"]


def test_what_gardener_calls_is_there(image: Image) -> None:
    """By its init script, its units, and the probe of the machine's Pod."""
    for program in (
        "/bin/sh", "/usr/bin/base64", "/usr/bin/ctr", "/usr/bin/env", "/usr/bin/kubectl", "/usr/bin/pkill",
        "/usr/bin/sed", "/usr/sbin/logrotate", "/usr/sbin/update-ca-certificates", "/usr/sbin/useradd",
    ):  # fmt: skip
        assert _has(image, program), program


def test_units_that_start_with_the_machine_are_in_the_image(image: Image) -> None:
    enabled = {name: target for name, target in image.links.items() if ".wants/" in name}
    assert len(enabled) > 8
    for name, target in enabled.items():
        assert _has(image, posixpath.normpath(posixpath.join("/", posixpath.dirname(name), target))), name


@pytest.mark.parametrize("arguments", [["create", "--bundle", "{folder}"], ["exec", "--process", "{file}"]])
def test_containers_get_no_capability_that_the_machine_lacks(tmp_path: Path, arguments: list[str]) -> None:
    runc, real = tmp_path / "bin" / "runc", tmp_path / "lib" / "machine" / "runc"
    for path in (runc, real):
        path.parent.mkdir(parents=True)
    shutil.copy(systemdimage.FILES / "runc", runc)
    real.write_text('#!/bin/sh\necho "$@"\n')
    real.chmod(0o755)
    file, every = tmp_path / "config.json", ["CAP_NET_ADMIN", "CAP_SYS_RESOURCE", "CAP_CHOWN"]
    given = [every, every[:2], every[1:2], []]
    file.write_text(json.dumps(given, separators=(",", ":")))
    words = [one.format(folder=tmp_path, file=file) for one in arguments]
    lacking = ["setpriv", "--bounding-set=-sys_resource"] if os.geteuid() == 0 else []
    said = subprocess.run([*lacking, runc, *words], capture_output=True, text=True, timeout=20, check=True)
    assert said.stdout.split() == words
    bounded = int(re.findall(r"CapBnd:\s*(\w+)", Path("/proc/self/status").read_text())[0], 16)
    kept = every if not lacking and bounded >> 24 & 1 else [every[0], every[2]]
    assert json.loads(file.read_text())[0] == kept
    if kept != every:
        assert json.loads(file.read_text())[1:] == [every[:1], [], []]


def _has(image: Image, path: str) -> bool:
    """Whether the image has a file, or a link to one, at the path."""
    name = systemdimage.placed(path.lstrip("/"))
    target = image.links.get(name)
    if target is None:
        return name in image.files
    return _has(image, posixpath.join("/", posixpath.dirname(name), target))
