"""`python -m sandbox.programs.pythonpackages`: install what this checkout needs into this environment.

uv takes ten seconds where pip takes a minute; where uv is not to be had, pip does it. Runs before anything is
installed, so it imports the standard library only.
"""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from sandbox.progress import Job, Progress

_ROOT = Path(__file__).parents[2]
_PIP = (sys.executable, "-m", "pip")
_UV = "uv==0.13.9"
_PATIENCE = 120
WANTED = ("-c", "constraints.txt", "-e", ".[dev,otel]")


def main() -> int:
    """Install with progress output; print the last lines of pip if that fails."""
    progress = Progress(lambda text: print(text, flush=True))
    where = Path(sys.prefix).name
    try:
        with progress.job(f"Python packages for {where}", "fetching", "installed") as job:
            if not _with_uv():
                _with_pip(job)
    except subprocess.CalledProcessError as error:
        print(
            error.output, "pip could not install what windowbox needs: see above.", sep="\n", file=sys.stderr
        )
        return 1
    return 0


def _with_uv() -> bool:
    """Whether uv was fetched, and has installed everything."""
    try:
        environment = like_pip(os.environ)
        for command in (
            (*_PIP, "install", "--quiet", "--disable-pip-version-check", "--no-compile", _UV),
            (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable, *WANTED),
        ):
            subprocess.run(
                command, cwd=_ROOT, env=environment, timeout=_PATIENCE, check=True,
                stdin=subprocess.DEVNULL, capture_output=True,
            )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def like_pip(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which uv asks the index that pip asks, and trusts whom pip trusts."""
    found = dict(environment)
    asked = subprocess.run(
        [*_PIP, "config", "get", "global.index-url"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if index := environment.get("PIP_INDEX_URL") or asked.stdout.strip():
        found.setdefault("UV_DEFAULT_INDEX", index)
    if authorities := environment.get("PIP_CERT"):
        found.setdefault("SSL_CERT_FILE", authorities)
    return found


def _with_pip(job: Job) -> None:
    last: collections.deque[str] = collections.deque(maxlen=15)
    found = 0
    pip = subprocess.Popen(
        [*_PIP, "install", "--disable-pip-version-check", "--progress-bar", "off", *WANTED],
        cwd=_ROOT, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert pip.stdout
    for line in pip.stdout:
        last.append(line.rstrip())
        found += line.startswith("Collecting ")
        job.detail = f"installing {found}" if line.startswith("Installing collected") else f"{found} found"
    if pip.wait():
        raise subprocess.CalledProcessError(pip.returncode, "pip", output="\n".join(last))


if __name__ == "__main__":
    sys.exit(main())
