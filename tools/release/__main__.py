"""`python -m tools.release [FOLDER]`: make a release of this checkout, in dist/ by default."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.release import building
from windowbox.errors import WindowboxError

try:
    building.committed()
    version = building.consistent_version()
    building.unreleased(version)
    building.announced(version)
    for made in building.release(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")):
        print(made)
except WindowboxError as error:
    sys.exit(str(error))
