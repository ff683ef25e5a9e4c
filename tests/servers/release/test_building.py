"""`make release`, twice."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support import servers
from tools.release import building


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_release_is_the_same_bytes_twice(tmp_path: Path) -> None:
    if reason := servers.missing("nats-server", "named"):
        pytest.skip(reason)
    first, second = ([*building.release(tmp_path / name)] for name in ("first", "second"))
    assert [one.name for one in first] == [one.name for one in second]
    assert (tmp_path / "first" / "SHA256SUMS").read_text() == (tmp_path / "second" / "SHA256SUMS").read_text()
    checked = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path / "second", check=False)
    assert checked.returncode == 0
    [image] = [one for one in second if one.name.endswith(".oci.tar")]
    _check_layout(image)


def _check_layout(path: Path) -> None:
    """Every blob is what its name says, and the manifest leads to all of them."""
    with tarfile.open(path) as archive:
        content = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    blobs = {os.path.basename(name): data for name, data in content.items() if name.startswith("blobs/")}
    assert {name: hashlib.sha256(data).hexdigest() for name, data in blobs.items()} == {
        one: one for one in blobs
    }
    [entry] = json.loads(content["index.json"])["manifests"]
    manifest = json.loads(blobs[entry["digest"].removeprefix("sha256:")])
    named = [manifest["config"]["digest"], *(one["digest"] for one in manifest["layers"]), entry["digest"]]
    assert {one.removeprefix("sha256:") for one in named} == {*blobs}
