"""CI runs all tests, or says which it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import skips

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("reason", "ci", "workers", "status"),
    [
        pytest.param("sshd is not on this machine", "true", 0, skips.UNEXPLAINED, id="unexplained-in-ci"),
        pytest.param(
            "sshd is not on this machine", "true", 1, skips.UNEXPLAINED, id="unexplained-in-a-worker"
        ),
        pytest.param("sshd is not on this machine", "", 0, 0, id="unexplained-elsewhere"),
        pytest.param("the contract's examples are not here", "true", 0, 0, id="explained-in-ci"),
    ],
)
def test_ci_fails_on_unexplained_skips(
    tmp_path: Path, reason: str, ci: str, workers: int, status: int
) -> None:
    (tmp_path / "test_some.py").write_text(
        f"import pytest\n\ndef test_one(): pass\n\ndef test_two(): pytest.skip({reason!r})\n"
    )
    options = ["-p", "tests.support.skips", f"-n{workers}", f"--rootdir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        env={**os.environ, "CI": ci}, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    assert ("CI must run them" in done.stdout) == bool(status)
