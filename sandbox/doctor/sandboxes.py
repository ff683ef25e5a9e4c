"""Checks of one sandbox: its processes and its ports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sandbox import processes
from sandbox import state as states
from sandbox.doctor.findings import Finding
from sandbox.state import State
from windowbox.errors import Malformed


def examine(folder: Path) -> Iterator[Finding]:
    what = f"sandbox {folder.name!r}"
    try:
        state = states.read(folder)
    except Malformed as error:
        yield Finding(what, "wrong", str(error), f"rm -r {folder}")
        return
    if state is None:
        yield Finding(what, "note", "was never started", states.command("up", folder))
        return
    if state.running():
        yield from _running(what, state)
    else:
        yield from _leftovers(what, state)
    yield from _overlaps(folder, state)


def _running(what: str, state: State) -> Iterator[Finding]:
    yield Finding(what, "ok", f"running, supervisor {state.pid}")
    for name, child in state.children.items():
        mend = f"windowbox logs {name} --name {state.name}"
        if child.condition != "ready":
            yield Finding(name, "wrong", f"{child.condition}, last exit: {child.last_exit or 'none'}", mend)
        elif child.restarts:
            yield Finding(name, "note", f"restarts: {child.restarts}, last exit: {child.last_exit}", mend)
        else:
            yield Finding(name, "ok", f"ready on port {child.port}" if child.port else "ready")


def _leftovers(what: str, state: State) -> Iterator[Finding]:
    left = [name for name, child in state.children.items() if child.running()]
    mend = f"windowbox down --name {state.name}"
    if left:
        yield Finding(what, "wrong", f"its supervisor is gone, but these run: {', '.join(left)}", mend)
    else:
        yield Finding(what, "note", "is not running", f"windowbox up --name {state.name}")
    for name, port in state.options.ports.items():
        if not processes.is_free(port):
            yield Finding(
                what,
                "wrong",
                f"port {port} of {name} is taken",
                f"see who has it: ss -lntup 'sport = {port}'",
            )


def _overlaps(folder: Path, state: State) -> Iterator[Finding]:
    """Sandboxes with the same fixed ports cannot run at once."""
    mine = {port: name for name, port in state.options.ports.items()}
    for path in sorted(folder.parent.glob("*/state.json")):
        if path.parent == folder:
            continue
        try:
            other = states.read(path.parent)
        except Malformed:
            continue
        for port in set(other.ports.values()) & mine.keys() if other and other.running() else ():
            yield Finding(
                f"sandbox {folder.name!r}",
                "wrong",
                f"port {port} ({mine[port]}) is also used by the sandbox {path.parent.name!r}",
                "give one of them another port, or none",
            )
