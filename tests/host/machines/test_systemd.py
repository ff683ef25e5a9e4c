"""Machines that run systemd, which Gardener's node agent asks for: they do what all machines do."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.nodes import images
from sandbox.shoots import consoles, creation, waiting
from tests.host.machines import handmade
from tests.host.machines.conftest import ShootWorld
from tests.host.machines.test_image import UNITS, termination
from tools.gardener.machines import systemdimage
from windowbox.errors import Missing

# Two hundred megabytes are packed and imported for these tests alone.
pytestmark = [pytest.mark.long, pytest.mark.slow]

IMAGE = "windowbox.local/machine-systemd:1"
REBOOTS = """#!/bin/bash
if [ -e /etc/before ]; then
    echo "the disk was kept, and $(cat /proc/sys/vm/max_map_count) with it"
    exit 7
fi
touch /etc/before
echo vm.max_map_count=135217728 > /etc/sysctl.d/99-maps.conf
systemctl reboot
"""


@pytest.fixture(scope="module", autouse=True)
def _imported(world: ShootWorld, tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        image = systemdimage.image(IMAGE)
    except Missing as error:
        pytest.skip(str(error))
    archive = images.write(image, tmp_path_factory.mktemp("image") / "systemd.tar")
    creation.import_image(archive, IMAGE, world.sandbox.sockets())
    archive.unlink()


def test_failing_user_data_is_reported(world: ShootWorld) -> None:
    message = _run(world, "systemd", UNITS)

    assert message.startswith("user data ended with exit code 7\n")
    assert message.endswith("all is well\n")
    said = list(consoles.lines(world.sandbox.folder / "machines", "systemd"))
    assert any(line.endswith("all is well") for line in said)


def test_a_machine_that_boots_again_keeps_its_disk_and_leaves_the_host_alone(world: ShootWorld) -> None:
    before = Path("/proc/sys/vm/max_map_count").read_text()

    assert "the disk was kept, and 135217728 with it\n" in _run(world, "reboots", REBOOTS)

    assert Path("/proc/sys/vm/max_map_count").read_text() == before


def _run(world: ShootWorld, name: str, data: str) -> str:
    """The termination message of a machine whose user data ends with 7."""
    handmade.make(world, name, data, IMAGE)
    pods, machine = world.pods(), f"machine-{name}"
    ended = waiting.until(
        world.sandbox.api,
        pods,
        machine,
        lambda pod: termination(pod).get("exitCode") == 7,
        "it runs",
        patience=90,
    )
    handmade.remove(world, name)
    waiting.until_gone(world.sandbox.api, pods, machine, "it is not gone", patience=60)
    return str(termination(ended)["message"])
