"""Sandboxes that run in the background: start, stop and status."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from sandbox import files, processes
from sandbox import state as states
from sandbox.nodes import leftovers
from sandbox.options import Options
from sandbox.state import ChildState, State
from windowbox.errors import Missing, Refused, Unreachable

_LOOK_AGAIN = 0.05
_PATIENCE = 120
_ENDING = 60
_HOPELESS = 5
"""A child that crashed this often and never became ready will not recover by itself."""


def up(
    folder: Path,
    chosen: Mapping[str, object],
    *,
    say: Callable[[str, ChildState], None] = lambda name, child: None,
) -> State:
    """Start the sandbox in `folder`, and wait until all children are ready. Idempotent.

    `chosen` are the requested options; `say` is called for each child that has become ready or crashed.
    Children whose programs are still being installed (the option `awaited`) are not waited for.
    """
    state = states.read(folder)
    if state and state.running():
        wanted = Options.model_validate({**state.options.model_dump(), **chosen})
        if wanted != state.options:
            raise Refused(
                f"the sandbox {folder.name!r} is running with other options: "
                f"`{states.command('down', folder)}` first (data is kept)"
            )
    else:
        # Where the death of a parent sends no signal (macOS), a killed supervisor leaves its children.
        if state:
            _end_children(state)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # it holds passwords, keys and kubeconfigs
        files.write_private(folder / "options.json", Options.model_validate(chosen).model_dump_json(indent=2))
        logs = folder / "logs"
        logs.mkdir(exist_ok=True)
        with (logs / "supervisor.log").open("ab") as output:
            supervisor = subprocess.Popen(
                [sys.executable, "-m", "sandbox.supervisor", str(folder.absolute())],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in this terminal must not end it
            )
        try:
            _wait_for_first_word(folder, supervisor)
        except BaseException:
            # Interrupted: `down` would not find a supervisor that has not written its state.
            processes.end(processes.identify(supervisor.pid), patience=_ENDING)
            raise
    return _wait(folder, say)


def down(folder: Path, *, wipe: bool = False) -> list[str]:
    """End exactly what `up` started there, and return what that was. Idempotent, also after a crash."""
    state = states.read(folder)
    ended = []
    if state:
        running = [name for name, child in state.children.items() if child.running()]
        if processes.end(state.supervisor(), patience=_ENDING):
            ended = ["supervisor", *running]
        left = _end_children(state)
        ended += [name for name in left if name not in ended]
    ended += leftovers.clear()
    if wipe:
        shutil.rmtree(folder, ignore_errors=True)
    return ended


def running(folder: Path) -> State:
    """The state of the sandbox in `folder`; Missing if none runs there."""
    state = states.read(folder)
    if state is None or not state.running():
        raise Missing(
            f"the sandbox {folder.name!r} is not running (in {folder.parent}): "
            f"start it with `{states.command('up', folder)}`"
        )
    return state


def logs(folder: Path) -> list[str]:
    """The names of all logs there are."""
    top = folder / "logs"
    return sorted(str(path.relative_to(top).with_suffix("")) for path in top.rglob("*.log"))


def log(folder: Path, name: str) -> Path:
    path = folder / "logs" / f"{name}.log"
    if not path.exists():
        known = ", ".join(logs(folder)) or "none yet"
        raise Missing(f"the sandbox {folder.name!r} has no log of {name!r}; it has: {known}")
    return path


def _wait_for_first_word(folder: Path, supervisor: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + 60
    while True:
        state = states.read(folder)
        if state and state.pid == supervisor.pid:
            return
        if supervisor.poll() is not None:
            # A concurrent `up` may have won; its supervisor serves as well as ours.
            if state and state.running():
                return
            raise Unreachable(f"the supervisor ended at once: {_last_line(log(folder, 'supervisor'))}")
        if time.monotonic() > limit:
            raise Unreachable(
                f"the supervisor has not written its state; see {folder / 'logs' / 'supervisor.log'}"
            )
        time.sleep(_LOOK_AGAIN)


def _wait(folder: Path, say: Callable[[str, ChildState], None]) -> State:
    limit, printed = time.monotonic() + _PATIENCE, set[tuple[str, str]]()
    while True:
        state = states.read(folder)
        if state is None or not state.running():
            reason = state.failure if state and state.failure else _last_line(log(folder, "supervisor"))
            raise Unreachable(f"the sandbox did not start: {reason}")
        for name, child in state.children.items():
            if child.condition in ("ready", "crashed") and (name, child.condition) not in printed:
                printed.add((name, child.condition))
                say(name, child)
        late = [n for n, c in state.children.items() if c.condition != "ready" and not c.lacks_program()]
        if state.children and not late:
            return state
        hopeless = any(c.restarts >= _HOPELESS and c.took is None for c in state.children.values())
        if hopeless or time.monotonic() > limit:
            culprit = next((name for name in late if state.children[name].restarts), late[0])
            raise Unreachable(
                f"these do not become ready: {', '.join(late)}. "
                f"{culprit} said last: {_last_line(Path(state.children[culprit].log))!r}. "
                f"More: `windowbox logs {culprit} --name {folder.name}`. The supervisor keeps restarting "
                f"it; `{states.command('down', folder)}` ends everything"
            )
        time.sleep(_LOOK_AGAIN)


def _end_children(state: State) -> list[str]:
    """End the children of a supervisor that was killed, last started first."""
    ended = []
    for name, child in reversed(state.children.items()):
        process = child.process()
        if process and processes.end(process):
            ended.append(name)
    return ended


def _last_line(path: Path) -> str:
    if not path.exists():
        return "nothing"
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "nothing"
