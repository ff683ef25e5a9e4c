"""The image of a machine that runs systemd, without booting it."""

from __future__ import annotations

import posixpath
import re

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


def _has(image: Image, path: str) -> bool:
    """Whether the image has a file, or a link to one, at the path."""
    name = systemdimage.placed(path.lstrip("/"))
    target = image.links.get(name)
    if target is None:
        return name in image.files
    return _has(image, posixpath.join("/", posixpath.dirname(name), target))
