"""Wheel, sdist, chart, image, bill of materials and checksums of a checkout."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sandbox.programs import binaries
from tools.release import archives, bom, ocilayout, ownimage
from windowbox.errors import Malformed, Refused, Unreachable

ROOT = Path(__file__).parents[2]
_CHARTS = "deploy/charts"
CHARTS = ("windowbox", "windowbox-admission-application", "windowbox-admission-runtime")
_CHANGELOG = "CHANGELOG.md"
_PENDING = "Not released yet."
_LEFT_OUT = (".github/", "tests/")
"""What an sdist need not have."""
_SUMS = "SHA256SUMS"
_NUMBER = re.compile(r"(?:windowbox[a-z-]*:|tag: )(\d+\.\d+\.\d+)")
"""The version of an image or a chart, as manifests and commands name it."""


def release(folder: Path) -> Iterator[Path]:
    """Make everything in `folder`, from which an older release is removed before."""
    version, time = consistent_version(), _time()
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
    ocilayout.write(files, image, version)
    materials = folder / f"windowbox-{version}.cdx.json"
    document = bom.document(version, time, _programs(), ownimage.native(files))
    materials.write_text(json.dumps(document, indent=1) + "\n")
    sums = folder / _SUMS
    sums.write_text("".join(f"{_digest(one)}  {one.name}\n" for one in sorted([*made, image, materials])))
    yield from (image, materials, sums)


def emptied(folder: Path) -> None:
    """Remove the release in a folder, and nothing else: Refused if it holds other things."""
    if folder.exists() and any(folder.iterdir()) and not (folder / _SUMS).is_file():
        raise Refused(f"{folder} is not empty and holds no release: name another folder, or empty it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def committed() -> None:
    """Refused if the checkout differs from its commit: the image would hold what no commit has."""
    if changed := _git("status", "--porcelain"):
        raise Refused(f"commit or remove these before a release:\n{changed}")


def unreleased(version: str) -> None:
    """Refused if the tag of this version names another commit: the files would not be those released."""
    tag = f"v{version}"
    if _git("tag", "--list", tag) and _git("rev-parse", f"{tag}^{{commit}}") != _git("rev-parse", "HEAD"):
        raise Refused(f"{tag} is another commit: check it out, or write the next version into the files")


def announced(version: str) -> None:
    """Refused while the changelog, which is in the wheel, says of this version that it is not released."""
    text = (ROOT / _CHANGELOG).read_text().partition(f"\n## {version}\n")[2].partition("\n## ")[0]
    if _PENDING in text:
        raise Refused(f"{_CHANGELOG} says of {version}: {_PENDING} Take that out, and commit")


def consistent_version() -> str:
    """The version in pyproject.toml; Malformed if another file has another one."""
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    charts = {f"{name}/Chart.yaml": _description(name) for name in CHARTS}
    named = (
        "deploy/gardener/controllerregistration.yaml",
        "deploy/gardener/extension.yaml",
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
    """Built from what git has: nothing that lies about in the checkout gets in."""
    with tempfile.TemporaryDirectory() as sources:
        for name, path in _sources().items():
            target = Path(sources, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target, follow_symlinks=False)
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            f"--wheel-dir={folder}",
            sources,
        ]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time)}
        # Modes of files get into the wheel, too.
        built = subprocess.run(
            command, env=environment,
            capture_output=True, text=True, timeout=600, check=False, umask=0o022,
        )  # fmt: skip
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
    return archives.packed(files | {f"windowbox-{version}/PKG-INFO": metadata}, time)


def _description(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / _CHARTS / name / "Chart.yaml").read_text())
    return found


def chart(name: str, time: int) -> bytes:
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
    return archives.packed(files, time)


def _sources() -> dict[str, Path]:
    """The files that git has, by their paths."""
    listed = _git("ls-files", "-z").split("\0")
    return {name: ROOT / name for name in sorted(filter(None, listed)) if os.path.lexists(ROOT / name)}


def _programs() -> dict[str, str]:
    """What the image holds besides packages."""
    found = {"python": platform.python_version()}
    for name in ("nats-server", "named"):
        program = binaries.look(name)
        if isinstance(program, binaries.Found):
            found[name] = binaries.text(program.version)
    return found


def _time() -> int:
    """That of the last commit: the same for all who build it."""
    return int(_git("log", "-1", "--format=%ct"))


def _git(*arguments: str) -> str:
    try:
        answer = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unreachable(f"a release is made from a git checkout: {error}") from error
    return answer.stdout.strip("\n")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
