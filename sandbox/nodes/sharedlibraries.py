"""Which shared libraries programs of this machine need in an image."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from sandbox.programs import openssh

_LIBRARY = re.compile(r"(/\S+) \(0x")


def found(programs: Iterable[Path]) -> dict[str, Path]:
    """Shared libraries of the programs, at the paths where the loader searches."""
    listed = subprocess.run(
        ["ldd", *map(str, programs)], env={**os.environ, "LD_LIBRARY_PATH": openssh.libraries()},
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    return {openssh.inside(Path(path)): Path(path) for path in _LIBRARY.findall(listed.stdout)}
