"""Parts of a release: archives, licences, pins, the bill of materials."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
from email.message import Message
from pathlib import Path

import pytest

from tools.release import bom, building, pins
from windowbox.errors import Malformed, Refused

ROOT = pins.ROOT
_PINNED = re.compile(r"^([\w.-]+)==(\S+) \\$", re.MULTILINE)


def test_archives_depend_on_content_alone(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("x")
    first = building.packed({"b": b"y", "a": file}, 7)
    os.utime(file, (1, 1))
    assert building.packed({"a": file, "b": b"y"}, 7) == first
    assert building.packed({"a": file, "b": b"z"}, 7) != first


def test_every_dependency_has_a_permitted_licence() -> None:
    found = {one.name: bom.licence(one) for one in bom.required()}
    assert {"aiohttp", "cryptography", "nats-py", "pydantic"} <= found.keys()
    assert all(found.values())


@pytest.mark.parametrize("licence", ["GPL-3.0-only", "Proprietary", "", "MIT AND AGPL-3.0-only"])
def test_other_licences_are_refused(licence: str, tmp_path: Path) -> None:
    folder = tmp_path / "strange-1.dist-info"
    folder.mkdir()
    head = Message()
    head["Name"], head["Version"], head["License-Expression"] = "strange", "1", licence
    (folder / "METADATA").write_text(str(head))
    with pytest.raises(Refused, match="strange: licence"):
        bom.licence(importlib.metadata.Distribution.at(folder))


def test_the_bill_of_materials_is_complete_and_reproducible() -> None:
    files = {"bin/busybox": Path(__file__)}
    made = bom.document("1.2.3", 0, {"named": "9.18"}, files)
    listed = {one["name"].lower() for one in made["components"]}
    assert {one.name.lower() for one in bom.required()} | {"named", "/bin/busybox"} == listed
    assert made["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
    assert made == bom.document("1.2.3", 0, {"named": "9.18"}, files)


def test_every_package_is_pinned_by_hash() -> None:
    text = pins.FILE.read_text()
    pinned = dict(_PINNED.findall(text))
    wanted = {one.name.lower().replace("_", "-"): one.version for one in bom.required()}
    assert wanted.items() <= pinned.items()
    assert "setuptools" in pinned, "which builds windowbox in the image"
    assert all("--hash=sha256:" in part for part in text.split("==")[1:])


def test_pinned_versions_are_those_that_tests_run_with() -> None:
    lines = [line.strip() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    tried = {name.lower().replace("_", "-"): version for name, version in (one.split("==") for one in lines)}
    assert dict(_PINNED.findall(pins.FILE.read_text())).items() <= tried.items()


@pytest.mark.parametrize("file", ["deploy/requirements.txt", "constraints.txt", "pyproject.toml"])
def test_no_lock_names_a_host(file: str) -> None:
    assert not re.search(r"https?://|--index-url|--find-links", (ROOT / file).read_text())


def test_all_files_have_one_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", building.consistent_version())
    for name in ("pyproject.toml", "CHANGELOG.md", "deploy", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "pyproject.toml").unlink()
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "9.9.9"\n')
    monkeypatch.setattr(building, "ROOT", tmp_path)
    with pytest.raises(Malformed, match=r"Chart.yaml, CHANGELOG.md, .* not: correct"):
        building.consistent_version()


def test_folders_without_a_release_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(Refused, match="holds no release"):
        building.emptied(tmp_path)
    assert (tmp_path / "kept").read_text() == "mine"
    (tmp_path / "SHA256SUMS").touch()
    building.emptied(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_changed_checkout_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.setattr(building, "ROOT", tmp_path)
    building.committed()
    (tmp_path / "new.py").touch()
    with pytest.raises(Refused, match=r"new\.py"):
        building.committed()


def test_an_unreleased_changelog_stops_a_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(building, "ROOT", tmp_path)
    changes = "# Changelog\n\n## 0.3.0\n\nNot released yet.\n\n* Better.\n\n## 0.2.0\n\n* Good.\n"
    (tmp_path / "CHANGELOG.md").write_text(changes)
    building.announced("0.2.0")
    with pytest.raises(Refused, match=r"says of 0\.3\.0: Not released yet\."):
        building.announced("0.3.0")


def test_a_version_is_released_from_one_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
        subprocess.run(["git", "-C", tmp_path, *who, *arguments], check=True)

    git("init", "--quiet")
    monkeypatch.setattr(building, "ROOT", tmp_path)
    git("commit", "--quiet", "--allow-empty", "--message=one")
    building.unreleased("0.1.0")
    git("tag", "--annotate", "--message=first", "v0.1.0")
    building.unreleased("0.1.0")
    git("commit", "--quiet", "--allow-empty", "--message=two")
    with pytest.raises(Refused, match="is another commit"):
        building.unreleased("0.1.0")
    building.unreleased("0.2.0")
