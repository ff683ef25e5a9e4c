"""Images built from files of this machine."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from sandbox.nodes import images
from sandbox.nodes.images import Image


def test_an_image_has_files_and_entrypoint(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"#!/bin/sh\n")
    image = Image(
        "windowbox.local/some:1",
        {"bin/program": program, "etc/name": "some\n"},
        entrypoint=("/bin/program",),
        links={"bin/other": "program"},
    )
    with tarfile.open(images.write(image, tmp_path / "image.tar")) as archive:
        config, manifest, layer = (
            _read(archive, name) for name in ("config.json", "manifest.json", "layer.tar")
        )
    assert json.loads(manifest)[0]["RepoTags"] == ["windowbox.local/some:1"]
    assert json.loads(config)["config"]["Entrypoint"] == ["/bin/program"]
    assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        assert files.getmember("bin/program").mode == 0o755
        assert files.getmember("bin/other").linkname == "program"
        assert _read(files, "etc/name") == b"some\n"


def test_images_are_reproducible(tmp_path: Path) -> None:
    image = Image("windowbox.local/some:1", {"name": "some\n"})
    one, other = (images.write(image, tmp_path / name).read_bytes() for name in ("one", "other"))
    assert one == other


def test_a_home_belongs_to_the_user_of_the_image(tmp_path: Path) -> None:
    image = Image("windowbox.local/some:1", {}, folders=("etc", "home/some", "tmp"), user="65532:100")
    with tarfile.open(images.write(image, tmp_path / "image.tar")) as archive:
        layer = _read(archive, "layer.tar")
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        owners = {member.name: (member.uid, member.gid) for member in files}
    assert owners == {"etc": (0, 0), "home/some": (65532, 100), "tmp": (0, 0)}


def test_containers_have_the_variables_of_their_image() -> None:
    image = Image("windowbox.local/some:1", {}, variables={"SOME": "value"})
    found = images.config(image, "00")["config"]["Env"]
    assert found == ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SOME=value"]


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file
    return file.read()
