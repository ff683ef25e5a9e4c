"""Where temporary files of tests are: in memory, if there is enough; a plugin of pytest.

Hundreds of servers keep their stores there for a second each. On a disk, a third of their CPU goes into files
that come and go: ext4 leaves the place of a deleted file free for a while, and looks for another each time.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_ENOUGH = 8 << 30
"""Several times what all tests need at once, since programs need memory, too."""
_ROOT = "PYTEST_DEBUG_TEMPROOT"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if not config.option.basetemp and suited(_MEMORY):
        os.environ.setdefault(_ROOT, str(_MEMORY))


def suited(place: Path, enough: int = _ENOUGH) -> bool:
    """Whether a folder has so many bytes free, on disk and in memory, and programs in it may run."""
    if not os.access(place, os.W_OK) or os.statvfs(place).f_flag & os.ST_NOEXEC:
        return False
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(memory["MemAvailable"].split()[0]) << 10
    return min(shutil.disk_usage(place).free, available) > enough
