"""`python -m tools.release.pins` writes deploy/requirements.txt: packages of the image with hashes.

setuptools is among them, so that the build of the image fetches nothing else.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "requirements.txt"
_HEAD = """\
# The packages of the image, for the versions of Python and the machines that it is built for.
# Written by `python -m tools.release.pins` from pyproject.toml and constraints.txt.
"""
_VERSIONS = ("3.11", "3.12", "3.13")
_MACHINES = ("x86_64", "aarch64")
_LIBRARIES = (39, 38, 36, 35, 34, 31, 28, 27, 26, 24, 17, 12, 5)
"""Minor versions of glibc in the names of wheels: those of Debian 13 and before."""


def text(reports: Iterable[Mapping[str, Any]]) -> str:
    """The file, from reports of pip."""
    found: dict[str, set[str]] = {}
    for report in reports:
        for one in report["install"]:
            name = f"{one['metadata']['name'].lower().replace('_', '-')}=={one['metadata']['version']}"
            found.setdefault(name, set()).add(one["download_info"]["archive_info"]["hashes"]["sha256"])
    lines = [
        " \\\n".join([name, *(f"    --hash=sha256:{digest}" for digest in sorted(found[name]))])
        for name in sorted(found)
    ]
    return _HEAD + "\n".join(lines) + "\n"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    reports = []
    for version, machine in itertools.product(_VERSIONS, _MACHINES):
        platforms = [f"manylinux_2_{minor}_{machine}" for minor in _LIBRARIES] + [f"manylinux2014_{machine}"]
        # pip takes a platform only together with a target folder; a dry run writes nothing to it.
        command = [
            sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
            "--report=-",
            "--only-binary=:all:", "--target=nowhere", "--implementation=cp", f"--python-version={version}",
            *(f"--platform={one}" for one in platforms), "-c", str(ROOT / "constraints.txt"),
            *project["project"]["dependencies"], *project["build-system"]["requires"],
        ]  # fmt: skip
        answer = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
        reports.append(json.loads(answer.stdout))
    FILE.write_text(text(reports))


if __name__ == "__main__":
    main()
