"""windowbox as a wheel, installed into an environment of its own."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

SOURCES = {
    "pyproject.toml", "README.md", "LICENSE",
    "bus", "clouds", "commands", "deploy", "examples", "patchers", "sandbox", "ui", "watchers", "webhooks",
    "windowbox", "workers",
}  # fmt: skip
"""What a wheel is built from."""


def built(sources: Path, folder: Path) -> Path:
    """The wheel of these sources."""
    _pip("wheel", "--no-deps", f"--wheel-dir={folder}", str(sources))
    [wheel] = folder.iterdir()
    return wheel


def installed(wheel: Path, place: Path) -> Path:
    """The command of an environment that has the wheel, and the libraries of this environment."""
    venv.create(place, symlinks=True)
    _pip(f"--python={place / 'bin' / 'python'}", "install", "--no-deps", "--no-compile", str(wheel))
    [packages] = place.glob("lib/python*/site-packages")
    # Only the folder: files that make this checkout importable are not read in it.
    (packages / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return place / "bin" / "windowbox"


def required(requirements: Iterable[str]) -> set[str]:
    """The distributions of this environment that pip would install for these."""
    found, left = set[str](), list(requirements)
    while left:
        name = name_of(left.pop())
        # Some requirements hold for other systems or versions of Python only.
        with contextlib.suppress(metadata.PackageNotFoundError):
            if name not in found:
                left += [one for one in metadata.requires(name) or () if "extra ==" not in one]
                found.add(name)
    return found


def name_of(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
