"""Wheel, sdist, chart, image, bill of materials and checksums of a checkout."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from sandbox.programs import binaries
from tools.release import bom, ownimage
from windowbox.errors import Malformed, Refused, Unreachable

ROOT = Path(__file__).parents[2]
_CHARTS = "deploy/charts"
CHARTS = ("windowbox", "windowbox-admission-application", "windowbox-admission-runtime")
_CHANGELOG = "CHANGELOG.md"
_PENDING = "Not released yet."
_LEFT_OUT = (".github/", "tests/")
"""Folders that an sdist does not contain."""
_SUMS = "SHA256SUMS"
_NUMBER = re.compile(r"(?:windowbox[a-z-]*:|tag: )(\d+\.\d+\.\d+)")
"""The version of an image or a chart, as manifests and commands name it."""


def release(folder: Path) -> Iterator[Path]:
    """Build everything in `folder`, and yield each file. An older release in it is removed first."""
    # The time of the last commit is the same for everybody who builds it.
    version, time = consistent_version(), int(_git("log", "-1", "--format=%ct"))
    emptied(folder)
    made = [_wheel(folder, time)]
    yield made[0]
    for name, content in (
        (f"windowbox-{version}.tar.gz", _sdist(made[0], version, time)),
        *((f"{name}-{version}.tgz", chart(name, time)) for name in CHARTS),
    ):
        made.append(folder / name)
        made[-1].write_bytes(content)
        yield made[-1]
    image = folder / f"windowbox-image-{version}-{platform.machine()}.oci.tar"
    files = ownimage.image(edge=True)
    ownimage.write(files, image, version)
    materials = folder / f"windowbox-{version}.cdx.json"
    programs = {"python": platform.python_version()}
    for name in ("nats-server", "named"):
        program = binaries.look(name)
        if isinstance(program, binaries.Found):
            programs[name] = binaries.text(program.version)
    document = bom.document(version, time, programs, ownimage.native(files))
    materials.write_text(json.dumps(document, indent=1) + "\n")
    sums = folder / _SUMS
    lines = []
    for one in sorted([*made, image, materials]):
        with one.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {one.name}\n")
    sums.write_text("".join(lines))
    yield from (image, materials, sums)


def emptied(folder: Path) -> None:
    """Remove the release in a folder, and nothing else: Refused if it holds other things."""
    if folder.exists() and any(folder.iterdir()) and not (folder / _SUMS).is_file():
        raise Refused(f"{folder} is not empty and holds no release: name another folder, or empty it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def committed() -> None:
    """Refused if the checkout differs from its commit: the image would contain uncommitted files."""
    if changed := _git("status", "--porcelain"):
        raise Refused(f"commit or remove these before a release:\n{changed}")


def unreleased(version: str) -> None:
    """Refused if the tag of this version names another commit: the files would not be those released."""
    tag = f"v{version}"
    if _git("tag", "--list", tag) and _git("rev-parse", f"{tag}^{{commit}}") != _git("rev-parse", "HEAD"):
        raise Refused(f"{tag} is another commit: check it out, or write the next version into the files")


def announced(version: str) -> None:
    """Refused while the changelog, which is part of the wheel, calls this version unreleased."""
    text = (ROOT / _CHANGELOG).read_text().partition(f"\n## {version}\n")[2].partition("\n## ")[0]
    if _PENDING in text:
        raise Refused(f"{_CHANGELOG} says of {version}: {_PENDING} Take that out, and commit")


def consistent_version() -> str:
    """The version in pyproject.toml; Malformed if another file has another one."""
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    charts: dict[str, dict[str, Any]] = {
        f"{name}/Chart.yaml": yaml.safe_load((ROOT / _CHARTS / name / "Chart.yaml").read_text())
        for name in CHARTS
    }
    named = (
        *(f"deploy/gardener/{one}.yaml" for one in ("controllerregistration", "extension")),
        "docs/install.md",
    )
    found = {
        **{name: one["version"] == one["appVersion"] == version for name, one in charts.items()},
        _CHANGELOG: f"\n## {version}" in (ROOT / _CHANGELOG).read_text(),
        **{one: {*_NUMBER.findall((ROOT / one).read_text())} == {version} for one in named},
    }
    if wrong := [name for name, right in found.items() if not right]:
        raise Malformed(
            f"pyproject.toml has version {version}, {', '.join(wrong)} not: correct the wrong ones"
        )
    return version


def _wheel(folder: Path, time: int) -> Path:
    """Built from tracked files only: no other file of the checkout gets in."""
    with tempfile.TemporaryDirectory() as sources:
        for name, path in _sources().items():
            target = Path(sources, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target, follow_symlinks=False)
        options = ("--quiet", "--no-deps", f"--wheel-dir={folder}")
        command = [sys.executable, "-m", "pip", "wheel", *options, sources]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time)}
        # The wheel contains the modes of files.
        built = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600, check=False, umask=0o022
        )
    if built.returncode:
        raise Unreachable(f"pip could not build the wheel: {built.stderr[-2000:]}")
    [wheel] = folder.glob("*.whl")
    return wheel


def _sdist(wheel: Path, version: str, time: int) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"windowbox-{version}.dist-info/METADATA")
    files: dict[str, bytes | Path] = {
        f"windowbox-{version}/{name}": path
        for name, path in _sources().items()
        if not name.startswith(_LEFT_OUT) and path.is_file()
    }
    for name, path in _sources().items():
        if path.is_dir():  # a link in sandbox/shipped
            inside = path.resolve()
            files |= {
                f"windowbox-{version}/{name}/{one.relative_to(inside)}": one
                for one in inside.rglob("*")
                if one.is_file()
            }
    return packed(files | {f"windowbox-{version}/PKG-INFO": metadata}, time)


def chart(name: str, time: int) -> bytes:
    """The archive of a chart, as `helm package` makes it, with the same bytes each time."""
    prefix = f"{_CHARTS}/{name}/"
    files: dict[str, bytes | Path] = {
        f"{name}/{file.removeprefix(prefix)}": path
        for file, path in _sources().items()
        if file.startswith(prefix)
    }
    for file, path in list(files.items()):
        if isinstance(path, Path) and path.is_dir():
            del files[file]
            files |= {f"{file}/{one.name}": one for one in path.resolve().iterdir() if one.is_file()}
    return packed(files, time)


def packed(files: Mapping[str, bytes | Path], time: int) -> bytes:
    """A tar.gz whose bytes depend on names and content alone: sorted, with one time and no owner."""
    content = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=content, mode="wb", filename="", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, source in sorted(files.items()):
            data = source.read_bytes() if isinstance(source, Path) else source
            entry = tarfile.TarInfo(name)
            program = isinstance(source, Path) and source.stat().st_mode & 0o100
            entry.size, entry.mtime, entry.mode = len(data), time, 0o755 if program else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def _sources() -> dict[str, Path]:
    """The files that git tracks, by their paths."""
    listed = _git("ls-files", "-z").split("\0")
    return {name: ROOT / name for name in sorted(filter(None, listed)) if os.path.lexists(ROOT / name)}


def _git(*arguments: str) -> str:
    try:
        answer = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unreachable(f"a release is made from a git checkout: {error}") from error
    return answer.stdout.strip("\n")
