"""`python -m sandbox.programs.pythonpackages`: install what this checkout needs into this environment.

Runs before anything is installed, so it imports the standard library only.
"""

from __future__ import annotations

import collections
import subprocess
import sys
from pathlib import Path

from sandbox.progress import Progress

_ROOT = Path(__file__).parents[2]
_PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off")


def main() -> int:
    """Run pip with progress output; print its last output if it fails."""
    last: collections.deque[str] = collections.deque(maxlen=15)
    progress, found = Progress(lambda text: print(text, flush=True)), 0
    where = Path(sys.prefix).name
    try:
        with progress.job(f"Python packages for {where}", "fetching with pip", "installed") as job:
            pip = subprocess.Popen(
                [sys.executable, *_PIP, "-c", "constraints.txt", "-e", ".[dev,otel]"],
                cwd=_ROOT, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            assert pip.stdout
            for line in pip.stdout:
                last.append(line.rstrip())
                found += line.startswith("Collecting ")
                installing = line.startswith("Installing collected")
                job.detail = f"installing {found}" if installing else f"{found} found"
            if pip.wait():
                raise subprocess.CalledProcessError(pip.returncode, "pip")
    except subprocess.CalledProcessError:
        print(*last, "pip could not install what windowbox needs: see above.", sep="\n", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
