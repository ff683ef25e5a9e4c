"""What can be wrong with a machine, a sandbox or the servers, and how to mend it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from windowbox.errors import Malformed, WindowboxError
from windowbox.sandbox import binaries, packages, processes
from windowbox.sandbox import state as states
from windowbox.sandbox.binaries import Found, TooOld
from windowbox.sandbox.findings import Finding
from windowbox.sandbox.nodes import nodecheck
from windowbox.sandbox.roles import settings_file
from windowbox.sandbox.state import State
from windowbox.settings import load

_OPEN_FILES = 4096
_INOTIFY = {"max_user_watches": 65536, "max_user_instances": 128}


def examine(folder: Path, settings: Path | None) -> list[Finding]:
    """Everything there is to say about this machine, the sandbox in `folder`, and the servers in use."""
    return [*_machine(), *_sandbox(folder), *_servers(folder, settings)]


def _machine() -> Iterator[Finding]:
    yield Finding("Python", "ok", ".".join(map(str, sys.version_info[:3])))
    for name, program in binaries.PROGRAMS.items():
        if not program.nodes:
            yield _program(name)
    yield from nodecheck.examine()
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


def _sandbox(folder: Path) -> Iterator[Finding]:
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
            yield Finding(
                name, "note", f"restarted {child.restarts} times, last exit: {child.last_exit}", mend
            )
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
    """Sandboxes that were told the same fixed ports cannot run at once."""
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


def _servers(folder: Path, settings: Path | None) -> Iterator[Finding]:
    from windowbox.sandbox import balancercheck, kindcheck, servercheck

    path = settings_file(folder, "operator")
    if settings == path:  # as `windowbox env` says; then we know more than what stands there
        settings = None
    path = settings or path
    state = states.read(folder) if settings is None else None
    if settings is None and (state is None or not state.running()):
        return
    try:
        loaded = load(path)
    except Malformed as error:
        yield Finding("settings", "wrong", str(error), "compare with docs/settings.md")
        return
    yield servercheck.bus(loaded.nats)
    yield from servercheck.rights(loaded, folder if settings is None else None)
    for zone in loaded.dns.zones:
        yield from servercheck.zone(zone)
    if loaded.nats.user not in ("watcher", "patcher"):  # who have nothing to do with them
        yield from balancercheck.examine(loaded.loadbalancer)
    yield from kindcheck.examine(loaded)
