"""Processes whose clock is wrong."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def environment(folder: Path, seconds: int) -> dict[str, str]:
    """What makes the wall clock of a program be ahead by so many seconds."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = folder / "shiftedclock.so"
    if not library.exists():
        source = Path(__file__).with_name("shiftedclock.c")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True, timeout=60
        )
    return {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(seconds)}
