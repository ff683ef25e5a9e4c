"""Checks of this machine: programs, their versions, limits of the kernel; and of one of its sandboxes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from sandbox import processes
from sandbox import state as states
from sandbox.doctor.findings import Finding
from sandbox.nodes import addresses, hostresources, leftovers, routes
from sandbox.options import Options
from sandbox.programs import binaries, packages
from sandbox.programs.binaries import Found, TooOld
from sandbox.servers import ranges
from sandbox.state import State
from windowbox.errors import Malformed, WindowboxError

_OPEN_FILES = 4096
_INOTIFY = {"max_user_watches": 65536, "max_user_instances": 128}


def examine() -> Iterator[Finding]:
    """Checks of this machine."""
    yield Finding("Python", "ok", ".".join(map(str, sys.version_info[:3])))
    for name, program in binaries.PROGRAMS.items():
        if program.nodes:
            continue
        mend = "make setup" if program.module else packages.command()
        try:
            found = binaries.look(name)
        except WindowboxError as error:
            yield Finding(name, "wrong", str(error), f"unset {binaries.setting(program)}")
            continue
        match found:
            case Found():
                yield Finding(name, "ok", f"{binaries.text(found.version)} ({found.path})")
            case TooOld():
                have, wanted = binaries.text(found.version), binaries.text(program.oldest)
                yield Finding(name, "wrong", f"{found.path} is {have}, {wanted} or newer is needed", mend)
            case None:
                yield Finding(name, "wrong", "not on this machine", mend)
    yield from _real_nodes()
    yield from _limits()


def _real_nodes() -> Iterator[Finding]:
    """Findings are notes, not errors: a sandbox also runs without nodes."""
    if reason := hostresources.unsuited():
        yield Finding("real nodes", "note", f"need {reason}", "windowbox up --nodes 0")
        return
    lacking = packages.lacking_for_nodes()
    for name in hostresources.PROGRAMS:
        try:
            program = binaries.look(name)
        except WindowboxError:
            program = None
        if not isinstance(program, Found):
            lacking.append(name)
    if lacking:
        yield Finding("real nodes", "note", f"these are not here: {', '.join(lacking)}", "make setup")
    else:
        yield Finding("real nodes", "ok", "possible")
        wanted = Options().ranges
        parts, known = list(addresses.parts(wanted)), routes.known(foreign=True)
        taken = {n: found for part in parts for n in part if (found := ranges.overlapping(n, known))}
        text = " and ".join(wanted)
        if not taken:
            yield Finding("addresses for nodes", "ok", text)
        else:
            used = sorted({str(route) for found in taken.values() for route in found})
            free = sum(not (taken.keys() & set(part)) for part in parts)
            text += f": this host has routes to {', '.join(used)}; {free} parts are free"
            mend = "" if free else "set other `ranges` for the sandbox"
            yield Finding("addresses for nodes", "note", text, mend)
    if left := leftovers.found():
        text = f"left by a sandbox that was killed: {', '.join(left)}"
        yield Finding("leftovers", "note", text, "windowbox down")


def _limits() -> Iterator[Finding]:
    import resource  # not on every platform

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= _OPEN_FILES or soft == resource.RLIM_INFINITY:
        yield Finding("open files", "ok", f"{soft} for each process")
    else:
        raisable = hard >= _OPEN_FILES
        mend = f"ulimit -n {_OPEN_FILES}" if raisable else "raise nofile in /etc/security/limits.conf"
        yield Finding("open files", "note", f"{soft} for each process is few", mend)
    for name, enough in _INOTIFY.items():
        path = Path("/proc/sys/fs/inotify") / name
        if path.exists():
            value = int(path.read_text())
            mend = "" if value >= enough else f"sudo sysctl fs.inotify.{name}={enough}"
            yield Finding(f"inotify {name}", "note" if mend else "ok", str(value), mend)


def examine_sandbox(folder: Path) -> Iterator[Finding]:
    """Checks of one sandbox: its processes and its ports."""
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
        yield Finding(what, "ok", f"running, supervisor {state.pid}")
        for name, child in state.children.items():
            text, mend = f"last exit: {child.last_exit}", f"windowbox logs {name} --name {state.name}"
            if child.condition != "ready":
                text = f"{child.condition}, last exit: {child.last_exit or 'none'}"
                yield Finding(name, "wrong", text, mend)
            elif child.restarts:
                yield Finding(name, "note", f"restarts: {child.restarts}, {text}", mend)
            else:
                yield Finding(name, "ok", f"ready on port {child.port}" if child.port else "ready")
    else:
        left = [name for name, child in state.children.items() if child.running()]
        if left:
            text = f"its supervisor is gone, but these run: {', '.join(left)}"
            yield Finding(what, "wrong", text, f"windowbox down --name {state.name}")
        else:
            yield Finding(what, "note", "is not running", f"windowbox up --name {state.name}")
        for name, port in state.options.ports.items():
            if not processes.is_free(port):
                mend = f"find the process: ss -lntup 'sport = {port}'"
                yield Finding(what, "wrong", f"port {port} of {name} is taken", mend)
    yield from _overlaps(folder, state)


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
            text = f"port {port} ({mine[port]}) is also used by the sandbox {path.parent.name!r}"
            mend = "give one of them another port, or none"
            yield Finding(f"sandbox {folder.name!r}", "wrong", text, mend)
