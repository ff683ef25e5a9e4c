"""In CI, the few tests that failed beside others run once more, alone: `python -m tests.support.secondtry 1`.

Thousands of tests start real servers on machines that are busy otherwise. A test that fails then and passes
alone has a defect, or shows one of the product or the machine. It is printed by name and has to be explained,
but does not hide the results of the others. More than a few at once are no coincidence: CI fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

FEW = 3
_LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
_PYTEST = (sys.executable, "-m", "pytest", "--last-failed", "--last-failed-no-failures=none")


def verdict(failed: Iterable[str]) -> str:
    """Why there is no second try; empty if there is one."""
    names = list(failed)
    if not names:
        return "pytest ended without naming a test that failed: read what it printed above"
    if len(names) > FEW:
        return f"{len(names)} tests failed: a second try is for at most {FEW}"
    return ""


def main(code: int) -> int:
    """CODE is what pytest exited with. Returns what CI exits with."""
    if os.environ.get("CI") != "true" or code != pytest.ExitCode.TESTS_FAILED:
        return code
    failed = sorted(json.loads(_LAST_FAILED.read_text())) if _LAST_FAILED.exists() else []
    if reason := verdict(failed):
        print(reason, file=sys.stderr)
        return code
    tell("once more, alone", failed)
    done = subprocess.run(_PYTEST, check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    if done.returncode or " skipped" in done.stdout.splitlines()[-1]:
        return done.returncode or code
    tell("FLAKY: failed beside others and passed alone; find out why", failed)
    return 0


def tell(what: str, names: Iterable[str]) -> None:
    print("\n".join((f"{what}:", *(f"  {name}" for name in names))), flush=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
