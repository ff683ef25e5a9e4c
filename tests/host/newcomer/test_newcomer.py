"""`make newcomer` runs a clean clone with an empty home, tells how long each part takes, leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import newcomer

ROOT = Path(__file__).parents[3]
SHOWS = """
demo:
	@test -e ~/.cached || ls -A ~ /tmp /dev/shm
	@touch ~/.cached /tmp/temporary /dev/shm/shared
	@echo "home $$HOME in $$PWD: $$SECRET$$XDG_CACHE_HOME"
	@echo "      → dig: 172.18.255.224 12 ms"
	@echo "      answered the first client after 1 s"
	@echo "  0.5 s  a PersistentVolumeClaim is bound, and a Pod has written to it"
test:
	@test -e ~/.cached && echo tested
down:
	@echo "down $(ARGS)"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """What is cloned: its targets only print."""
    if reason := newcomer.refusal():
        pytest.skip(reason)
    home = Path.home()
    before = _places()
    (tmp_path / "Makefile").write_text(SHOWS)
    _commit(tmp_path)
    yield tmp_path
    assert _places() == before
    assert not any(
        path.exists() for path in (home / ".cached", Path("/tmp/temporary"), Path("/dev/shm/shared"))
    )


def _places() -> set[Path]:
    return set(Path("/var/tmp").glob("windowbox-newcomer-*"))


def _commit(folder: Path) -> None:
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
    for command in (["init"], ["add", "."], [*who, "commit", "--message=all"]):
        subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)


def _start(checkout: Path, *parts: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SECRET": "mine", "XDG_CACHE_HOME": "/elsewhere"}
    return subprocess.Popen(
        [sys.executable, "-m", "tools.newcomer", *parts],
        cwd=checkout, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_everything_is_fresh_and_its_times_are_told(checkout: Path) -> None:
    with _start(checkout) as started:
        said = started.communicate(timeout=60)[0]
    assert started.returncode == 0, said
    assert re.search(
        rf"^ +\d\.\d  home {Path.home()} in /var/tmp/windowbox-newcomer-\w+/windowbox: $", said, re.M
    )
    listed = {line.split()[-1] for line in said.partition("  home ")[0].splitlines() if line.split()[1:]}
    known = f"/{Path(sys.base_prefix).relative_to('/')}"
    assert all(one.rstrip(":") in {str(Path.home()), "/tmp", "/dev/shm"} or one in known for one in listed), (
        said
    )
    assert re.findall(r"^\| (.+) \| 0:0\d \|$", said, re.M) == [
        "make demo: first record", "make demo: load balancer", "make demo: Shoot", "make demo",
        "make demo again: first record", "make demo again: load balancer", "make demo again: Shoot",
        "make demo again", "make test",
    ]  # fmt: skip
    assert "down --wipe" in said


def test_a_failure_is_told_and_ends_it(checkout: Path) -> None:
    (checkout / "Makefile").write_text("demo:\n\t@exit 3\ntest:\n\t@echo tested\ndown:\n\t@echo ended\n")
    _commit(checkout)
    with _start(checkout) as started:
        said = started.communicate(timeout=60)[0]
    assert started.returncode != 0
    assert "make demo ended with 2" in said
    assert "tested" not in said
    assert "ended" in said


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_one_leaves_nothing(checkout: Path, sent: signal.Signals) -> None:
    (checkout / "Makefile").write_text("demo:\n\t@echo begun; exec sleep 1000\ndown:\n\t@echo ended\n")
    _commit(checkout)
    with _start(checkout, "demo") as started:
        assert started.stdout
        said = ""
        for line in started.stdout:
            said += line
            if "begun" in line:
                break
        started.send_signal(sent)
        said += started.communicate(timeout=60)[0]
    assert "ended" in said
    assert started.returncode != 0


def test_processes_that_stay_are_told(checkout: Path) -> None:
    (checkout / "Makefile").write_text("demo:\n\t@setsid sleep 5 >/dev/null 2>&1 &\ndown:\n")
    _commit(checkout)
    with _start(checkout, "demo") as started:
        said = started.communicate(timeout=60)[0]
    assert started.returncode != 0
    assert re.search(r"left behind: process \d+: (setsid )?sleep 5", said), said


def test_the_demo_says_what_is_timed() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "commands/demo").glob("*.py"))
    assert all(said in sources for said in ("dig: ", "answered the first client after"))
    assert "a PersistentVolumeClaim is bound" in sources
