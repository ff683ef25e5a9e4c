"""Reads the facts of this machine: side by side, within seconds, and without changing anything."""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sandbox import prerequisites
from sandbox import state as states
from sandbox.forecast import network, ports, resources
from sandbox.forecast.facts import Facts, Purpose
from sandbox.forecast.showing import PORTS
from sandbox.machines import image
from sandbox.nodes import suitability
from sandbox.programs import binaries, obtain, packages, releases
from sandbox.programs.binaries import PROGRAMS, Found
from sandbox.servers import resourcemanager
from windowbox.errors import Malformed, WindowboxError

_PATIENCE = 8.0
"""Seconds for all facts: ten minus the start of Python."""
_DOCKER = 3.0

T = TypeVar("T")


class _Asked:
    """A fact that is read in a thread. The end of this process waits for no such thread."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read, self._result = read, None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # Files of other systems and kernels are absent, or different: the fact stays unknown.
        with contextlib.suppress(OSError, ValueError, WindowboxError):
            self._result = self._read()

    def by(self, limit: float, otherwise: T) -> T:
        """The fact, or `otherwise` if it is not known by then."""
        self._thread.join(max(0.0, limit - time.monotonic()))
        return otherwise if self._result is None else self._result


def read(folder: Path, *, download: bool = True) -> Facts:
    """What decides over a demo with the sandbox in `folder`."""
    limit = time.monotonic() + _PATIENCE
    asked = {
        name: _Asked(reader)
        for name, reader in {
            "memory": resources.memory, "inotify": resources.inotify_free, "docker": _docker,
            "parts": network.free_parts, "site": network.site, "running": lambda: _running(folder),
            "servers": network.name_servers,
        }.items()
    }  # fmt: skip
    host = suitability.read(folder)
    nodes = not suitability.unsuited(host)
    looks = {name: _Asked(functools.partial(_is_here, name)) for name in _wanted(nodes=nodes)}
    absent = [name for name, look in looks.items() if not look.by(limit, otherwise=_may_be_here(name))]
    lacking = tuple(name for name in absent if PROGRAMS[name].module)
    asked_for = lacking if download else ()
    places = {name: place for name in asked_for if (place := releases.find(PROGRAMS[name]))}
    servers = asked["servers"].by(limit, otherwise=dict[str, bool]())
    unreachable: dict[str, str] | None = None
    if places:
        unreachable = _Asked(lambda: network.unreachable(places.values())).by(limit, otherwise=None)
    parts, overlapping = asked["parts"].by(limit, otherwise=(None, ()))
    cache = binaries.cache()
    folders: list[tuple[Purpose, Path]] = [("programs", cache), ("sandbox", folder)]
    folders += [("build", one) for one in resources.build_folders()]
    return Facts(
        host=host,
        architecture=binaries.architecture(),
        container=resources.container(),
        docker=asked["docker"].by(limit, otherwise=False),
        cpus=resources.cpus(),
        memory=asked["memory"].by(limit, otherwise=None),
        places=tuple(resources.place(purpose, one) for purpose, one in folders),
        inotify_free=asked["inotify"].by(limit, otherwise=None),
        ports={port: ports.refusal(port) for port in PORTS},
        free_parts=parts,
        overlapping=overlapping,
        site=asked["site"].by(limit, otherwise="wb0"),
        name_servers=servers,
        unreachable=unreachable,
        lacking=lacking,
        sources={name: place.source for name, place in places.items()},
        system=tuple(name for name in absent if not PROGRAMS[name].module),
        packages=tuple(packages.lacking_for_nodes()) if nodes else (),
        installs=packages.may_install(),
        bind_command=packages.command(),
        go=bool(shutil.which("go")) or (cache / f"go-{obtain.GO_VERSION}").exists(),
        running=asked["running"].by(limit, otherwise=False),
    )


def _wanted(*, nodes: bool) -> list[str]:
    """The programs of the demo."""
    names = [*prerequisites.SERVERS, *prerequisites.programs(nodes=nodes, simulated=not nodes)]
    if nodes:
        names += [*image.PROGRAMS, resourcemanager.PROGRAM]
    return list(dict.fromkeys(names))


def _is_here(name: str) -> bool:
    return isinstance(binaries.look(name), Found)


def _may_be_here(name: str) -> bool:
    """Whether there is a file, where its version was not known in time."""
    return packages.which(name) is not None or binaries.cached(PROGRAMS[name]).exists()


def _running(folder: Path) -> bool:
    try:
        state = states.read(folder)
    except Malformed:
        return False
    return bool(state and state.running())


def _docker() -> bool:
    """Whether an engine answers this user."""
    if not shutil.which("docker"):
        return False
    ask = ["docker", "version", "--format={{.Server.Version}}"]
    try:
        return subprocess.run(ask, capture_output=True, timeout=_DOCKER, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
