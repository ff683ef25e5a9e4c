"""Checks of this machine: programs, their versions, and limits of the kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from sandbox.doctor import nodes
from sandbox.doctor.findings import Finding
from sandbox.programs import binaries, packages
from sandbox.programs.binaries import Found, TooOld
from windowbox.errors import WindowboxError

_OPEN_FILES = 4096
_INOTIFY = {"max_user_watches": 65536, "max_user_instances": 128}


def examine() -> Iterator[Finding]:
    yield Finding("Python", "ok", ".".join(map(str, sys.version_info[:3])))
    for name, program in binaries.PROGRAMS.items():
        if not program.nodes:
            yield _program(name)
    yield from nodes.examine()
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
