"""The release before, or what is upgraded from where there is none: its sources, and its image."""

from __future__ import annotations

import compileall
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.nodes.images import Image
from tests.support import wheels
from tests.support.commandline import ROOT
from tools.release import ownimage

IMAGE = "windowbox.local/windowbox:0"
_OLDEST = "6fc87b04bfa6e7f7c391324fcdf589ebf293cdf5"
"""0.2.0, for checkouts without tags. Older releases may not run beside this one (docs/upgrade.md)."""


def extracted(folder: Path) -> Path:
    """Its sources, in `folder`. `CHAOS_PREVIOUS` names another commit or tag."""
    chosen = os.environ.get("CHAOS_PREVIOUS") or _git("describe", "--tags", "--abbrev=0", "HEAD^") or _OLDEST
    # A release has its own top-level folders.
    names = wheels.SOURCES & set(_git("ls-tree", "--name-only", chosen).splitlines())
    if not names:
        pytest.skip(f"the release before, {chosen}, is not in this checkout")
    archive = subprocess.run(
        ["git", "archive", chosen, *names], cwd=ROOT, capture_output=True, timeout=60, check=True
    )
    subprocess.run(
        ["tar", "--extract", f"--directory={folder}"], input=archive.stdout, timeout=60, check=True
    )
    return folder


def image(sources: Path) -> Image:
    """What its image would be with the libraries and programs of this machine."""
    compileall.compile_dir(sources, quiet=1)  # containers cannot write bytecode
    now = ownimage.image(edge=True)
    ours = tuple(f"{ownimage.OURS}/{name}/" for name in ownimage.PACKAGES)
    kept = {inside: file for inside, file in now.files.items() if not inside.startswith(ours)}
    files = [file for name in ownimage.PACKAGES for file in (sources / name).rglob("*") if file.is_file()]
    then = {f"{ownimage.OURS}/{file.relative_to(sources)}": file for file in files}
    return replace(now, name=IMAGE, files=kept | then)


def _git(*arguments: str) -> str:
    """What git prints; nothing if it fails."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.strip()
