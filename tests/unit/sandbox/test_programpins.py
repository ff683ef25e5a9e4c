"""Sums of official binaries are pinned from what their projects publish."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.programs import downloads, releases
from sandbox.programs.binaries import PROGRAMS
from sandbox.progress import Progress
from tests.unit.sandbox.releaseserver import MACHINE, Releases, layer, path_of, script, sums_of
from tools.release import programpins

KUBELET, ETCD, MANAGER = (PROGRAMS[name] for name in ("kubelet", "etcd", "gardener-resource-manager"))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of releases.json, of an older etcd."""
    content = json.loads(releases.FILE.read_text())
    content["etcd"]["version"] = "3.6.0"
    content["etcd"]["programs"]["etcd"] = dict.fromkeys(content["etcd"]["programs"]["etcd"], "0" * 64)
    content["helm"]["programs"]["helm"]["linux-amd64"] = "1" * 64
    path = tmp_path / "releases.json"
    path.write_text(json.dumps(content))
    monkeypatch.setattr(releases, "FILE", path)
    releases.known.cache_clear()
    yield path
    releases.known.cache_clear()


def test_pins_are_what_is_published(
    published: Releases, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = published.publish_image(
        "resource-manager", "v1.150.0", layer({MANAGER.name: script("v1.150.0")})
    )
    assert programpins.main() == 1  # helm and others are not published here
    content = json.loads(file.read_text())
    assert content["kubernetes"]["programs"]["kubelet"][MACHINE] == _sum(published, path_of(KUBELET))
    assert content["etcd"]["version"] == "3.7.0"
    assert content["etcd"]["programs"]["etcd"][MACHINE] == _sum(published, path_of(ETCD))
    assert f"sha256:{content['gardener']['programs'][MANAGER.name][MACHINE]}" == digest
    # A pin of an older version says nothing; one of this version stays.
    assert [pin for machine, pin in content["etcd"]["programs"]["etcd"].items() if machine != MACHINE] == [
        None
    ]
    assert content["helm"]["programs"]["helm"]["linux-amd64"] == "1" * 64
    assert "helm for linux-amd64 is not pinned: " in capsys.readouterr().err

    published.asked.clear()
    releases.known.cache_clear()
    assert downloads.download([KUBELET, MANAGER], Progress(print), lambda *_: None) == []
    assert sums_of(KUBELET) not in published.asked


def test_the_file_has_the_form_that_the_tool_writes() -> None:
    text = releases.FILE.read_text()
    assert text == f"{json.dumps(json.loads(text), indent=2)}\n"


def _sum(published: Releases, path: str) -> str:
    return hashlib.sha256(published.files[path]).hexdigest()
