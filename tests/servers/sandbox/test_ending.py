"""Compilers end with the set-up that started them, servers with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from sandbox import processes
from tests.support.cases import cases, long

# A Go that starts a compiler, and waits for it.
GO = """#!/bin/sh
[ "$1" = version ] && { echo go version go1.26.0; exit; }
sleep 600 &
echo "$$ $!" > "$STARTED/$1.new" && mv "$STARTED/$1.new" "$STARTED/$1"
wait
"""
GATHERING = """
from sandbox import prerequisites
from sandbox.progress import Progress
prerequisites.gather(["windowbox-echo"], Progress(print), download=False)
"""
IN_BACKGROUND = """
import threading
from sandbox import prerequisites
from sandbox.progress import Progress
with prerequisites.obtaining(["windowbox-echo"], Progress(print), download=False):
    threading.Event().wait()
"""

STARTING = """
import sys
from pathlib import Path
from sandbox import processes
print(processes.start(["sleep", "600"], Path(sys.argv[1])).pid, flush=True)
sys.stdin.read()
"""
RESTARTING = """
import asyncio, sys
from pathlib import Path
from sandbox.children import Child
from sandbox.restarter import Restarter
def ready():
    print(restarter.state.pid, flush=True)
    return True
restarter = Restarter(Child("sleep", ["sleep", "600"], ready), Path(sys.argv[1]), lambda: None)
restarter.start()
asyncio.run(restarter.run())
"""


@cases("program", ("server", STARTING), ("child-of-the-sandbox", RESTARTING))
def test_a_server_ends_with_its_killed_parent(tmp_path: Path, program: str) -> None:
    command = [sys.executable, "-c", program, str(tmp_path / "log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        server = processes.identify(int(parent.stdout.readline()))
        assert processes.alive(server)
        parent.kill()
        assert processes.wait_gone(server)


@cases(
    "program number",
    ("terminated-foreground", GATHERING, signal.SIGTERM),
    ("interrupted-background", IN_BACKGROUND, signal.SIGINT),
    long("terminated-background", IN_BACKGROUND, signal.SIGTERM),
    long("interrupted-foreground", GATHERING, signal.SIGINT),
)
def test_a_build_ends_with_its_waiting_process(tmp_path: Path, program: str, number: int) -> None:
    (tmp_path / "go").write_text(GO)
    (tmp_path / "go").chmod(0o755)
    started = tmp_path / "started"
    started.mkdir()
    more = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "WINDOWBOX_CACHE": str(tmp_path / "cache"),
        "STARTED": str(started),
    }
    waiting = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **more})
    try:
        deadline = time.monotonic() + 60
        files = [started / "list", started / "build"]
        while not all(file.exists() for file in files):
            assert waiting.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)  # no event says that a file appears
        building = [processes.identify(int(pid)) for file in files for pid in file.read_text().split()]
        waiting.send_signal(number)
        assert waiting.wait(30) != 0
        assert [process for process in building if not processes.wait_gone(process)] == []
    finally:
        waiting.kill()
        waiting.wait()
