"""Programs start in the images that the registry makes of them: their paths, libraries and users fit."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from sandbox.nodes import images as imagefiles
from tools.gardener import images
from tools.gardener.images import Component
from windowbox.errors import Missing

pytestmark = [
    pytest.mark.long,  # needs a built Gardener
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for chroot"),
]

_NOT_STARTED = (126, 127)
"""What shells and chroot answer for a program that they cannot start, or cannot find."""


@pytest.mark.parametrize(
    "row",
    [row for row in images.COMPONENTS.values() if row.how in ("real", "stand-in")],
    ids=lambda row: row.repository,
)
def test_programs_start_in_their_image(row: Component, tmp_path: Path) -> None:
    commands = [[path, "--help"] for path in row.files]
    commands += [["/bin/sh", "-c", f"{tool} --version"] for tool in row.tools]
    commands += [["/bin/sh", "-n", path] for path in row.scripts]
    root = _unpacked(row, tmp_path)
    for command in commands:
        found = _run(root, row.user or "0:0", command)
        assert found not in _NOT_STARTED, command


def _unpacked(row: Component, folder: Path) -> Path:
    try:
        made = images.image(row.repository)
    except Missing as missing:
        pytest.skip(str(missing))
    assert made is not None
    layer, root = folder / "layer.tar", folder / "root"
    with layer.open("wb") as content:
        imagefiles.write_layer(made, content)
    with tarfile.open(layer) as archive:
        archive.extractall(root, filter="fully_trusted")
    layer.unlink()
    return root


def _run(root: Path, user: str, command: list[str]) -> int:
    """Its exit code; 0 if it runs until it is stopped, which is enough here."""
    try:
        return subprocess.run(
            ["chroot", "--userspec", user, root, *command],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False,
        ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        return 0
