"""Python packages come with uv, from where pip gets them, or else with pip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sandbox.programs import pythonpackages
from tests.support.cases import cases
from tests.support.commandline import ROOT


@cases(
    "environment expected",
    ("index", {"PIP_INDEX_URL": "https://mirror.example/simple"},
     {"UV_DEFAULT_INDEX": "https://mirror.example/simple"}),
    ("own-index", {"PIP_INDEX_URL": "https://a.example", "UV_DEFAULT_INDEX": "https://b.example"},
     {"UV_DEFAULT_INDEX": "https://b.example"}),
    ("authorities", {"PIP_CERT": "/etc/ssl/mine.pem"}, {"SSL_CERT_FILE": "/etc/ssl/mine.pem"}),
)  # fmt: skip
def test_uv_asks_what_pip_asks(environment: dict[str, str], expected: dict[str, str]) -> None:
    found = pythonpackages.like_pip(environment)
    assert {name: found[name] for name in expected} == expected


def test_without_uv_pip_is_tried_and_says_what_is_missing(tmp_path: Path) -> None:
    nothing = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "sandbox.programs.pythonpackages"],
        cwd=ROOT, env={**os.environ, **nothing}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "pip could not install what windowbox needs: see above." in done.stderr
    assert "No matching distribution found" in done.stderr
