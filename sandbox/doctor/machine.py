"""Checks of this machine: programs, their versions, and limits of the kernel."""

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
    yield Finding("Python", "ok", ".".join(map(str, sys.version_info[:3])))
    for name, program in binaries.PROGRAMS.items():
        if not program.nodes:
            yield _program(name)
    yield from _nodes()
    yield from _limits()


def _program(name: str) -> Finding:
    program = binaries.PROGRAMS[name]
    mend = "make setup" if program.module else packages.command()
    try:
        found = binaries.look(name)
    except WindowboxError as error:
        return Finding(name, "wrong", str(error), f"unset {binaries.setting(program)}")
    match found:
        case Found():
            return Finding(name, "ok", f"{binaries.text(found.version)} ({found.path})")
        case TooOld():
            wanted = binaries.text(program.oldest)
            return Finding(
                name,
                "wrong",
                f"{found.path} is {binaries.text(found.version)}, {wanted} or newer is needed",
                mend,
            )
        case None:
            return Finding(name, "wrong", "not on this machine", mend)


def _limits() -> Iterator[Finding]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= _OPEN_FILES or soft == resource.RLIM_INFINITY:
        yield Finding("open files", "ok", f"{soft} for each process")
    else:
        mend = (
            f"ulimit -n {_OPEN_FILES}" if hard >= _OPEN_FILES else "raise nofile in /etc/security/limits.conf"
        )
        yield Finding("open files", "note", f"{soft} for each process is few", mend)
    for name, enough in _INOTIFY.items():
        path = Path("/proc/sys/fs/inotify") / name
        if path.exists():
            value = int(path.read_text())
            mend = "" if value >= enough else f"sudo sysctl fs.inotify.{name}={enough}"
            yield Finding(f"inotify {name}", "note" if mend else "ok", str(value), mend)


def _nodes() -> Iterator[Finding]:
    """Findings are notes, not errors: a sandbox also runs without nodes."""
    if reason := hostresources.unsuited():
        yield Finding("real nodes", "note", f"need {reason}", "windowbox up --nodes 0")
        return
    lacking = [*packages.lacking_for_nodes(), *filter(_lacks, hostresources.PROGRAMS)]
    if lacking:
        yield Finding("real nodes", "note", f"these are not here: {', '.join(lacking)}", "make setup")
    else:
        yield Finding("real nodes", "ok", "possible")
        yield _node_ranges(Options().ranges)
    if left := leftovers.found():
        text = f"left by a sandbox that was killed: {', '.join(left)}"
        yield Finding("leftovers", "note", text, "windowbox down")


def _lacks(name: str) -> bool:
    try:
        return not isinstance(binaries.look(name), Found)
    except WindowboxError:
        return True


def _node_ranges(wanted: tuple[str, str]) -> Finding:
    """Whether this host already has routes to the addresses of nodes."""
    parts, known = list(addresses.parts(wanted)), routes.known(foreign=True)
    taken = {
        network: found for part in parts for network in part if (found := ranges.overlapping(network, known))
    }
    what, text = "addresses for nodes", " and ".join(wanted)
    if not taken:
        return Finding(what, "ok", text)
    used = sorted({str(route) for found in taken.values() for route in found})
    free = sum(not (taken.keys() & set(part)) for part in parts)
    mend = "" if free else "set other `ranges` for the sandbox"
    return Finding(
        what, "note", f"{text}: this host has routes to {', '.join(used)}; {free} parts are free", mend
    )


def examine_sandbox(folder: Path) -> Iterator[Finding]:
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
