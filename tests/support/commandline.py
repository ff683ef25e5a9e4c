"""The command line of `windowbox`, of this checkout or of another installation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from sandbox import processes
from sandbox import state as states
from tests.support import forked
from tests.support.guardian import afterwards

ROOT = Path(__file__).parents[2]
_HERE = (sys.executable, "-m", "windowbox")


@dataclass
class CommandLine:
    """`windowbox` with its sandboxes in a folder of the test's own."""

    home: Path
    cwd: Path = ROOT
    program: tuple[str, ...] = _HERE
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.home / "default"

    def __call__(self, *arguments: str, expect: int | None = 0, **environment: str) -> str:
        """What the command printed; its errors, if it was expected to fail, or to do either."""
        variables = {**self.environment(), **environment}
        if (self.program, self.cwd) == (_HERE, ROOT):
            answer = forked.run(*arguments, environment=variables, folder=ROOT, timeout=150)
        else:
            answer = subprocess.run(
                [*self.program, *arguments],
                env=variables, cwd=self.cwd, capture_output=True, text=True, timeout=150, check=False,
            )  # fmt: skip
        assert expect is None or answer.returncode == expect, answer.stdout + answer.stderr
        return answer.stdout if expect == 0 else answer.stdout + answer.stderr

    def up(self, *more: str) -> str:
        return self("up", "--watchers=0", "--workers=0", "--patchers=0", "--nodes=0", *more)

    def kill(self, patience: float = 30) -> None:
        """Kill its supervisor, and wait until its children have ended, too."""
        state = states.read(self.folder)
        assert state
        os.kill(state.pid, signal.SIGKILL)
        for process in [state.supervisor(), *(child.process() for child in state.children.values())]:
            assert process is None or processes.wait_gone(process, patience), "it outlived its supervisor"

    def environment(self) -> dict[str, str]:
        known = {key: value for key, value in os.environ.items() if not key.startswith("WINDOWBOX_S")}
        return {**known, "WINDOWBOX_HOME": str(self.home), **self.variables}

    def ended(self) -> AbstractContextManager[int]:
        """Its sandbox is ended afterwards, even if the test process is killed."""
        return afterwards(*self.program, "down", cwd=self.cwd, env=self.environment(), patience=120)
