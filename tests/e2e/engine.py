"""A Docker engine of the test's own, which shares nothing with the machine and leaves nothing behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sandbox import processes
from tests.support import namespaces

T = TypeVar("T")

_SET_FLAGS, _UP = 0x8914, 1
# Everything that Docker does to network and mounts happens in namespaces that end with it; so do its
# containers. Its packet filter rules are left out: nothing here talks to the outside.
_OWN_WORLD = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_START = 'mount -t tmpfs tmpfs /run && exec "$@"'


class Unable(Exception):
    """No Docker engine can run here, for this reason."""


@dataclass(frozen=True)
class Engine:
    folder: Path
    pid: int

    def docker(self, *arguments: str) -> str:
        return self.run("docker", *arguments)

    def compose(self, *arguments: str, env: dict[str, str]) -> str:
        return self.run(*compose_command(), *arguments, env=env)

    def run(self, *argv: str, env: dict[str, str] | None = None) -> str:
        variables = {**os.environ, "DOCKER_HOST": f"unix://{self.folder}/docker.sock", **(env or {})}
        done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise AssertionError(f"{' '.join(argv[:4])} …: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout

    def listener(self, port: int) -> socket.socket:
        """A socket that listens on all addresses of the engine's network."""
        return self._there(lambda: socket.create_server(("0.0.0.0", port)))

    def raise_loopback(self) -> None:
        """A new network has a loopback that is down; published ports need it."""

        def act() -> None:
            with socket.socket(type=socket.SOCK_DGRAM) as any_socket:
                fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))

        self._there(act)

    def _there(self, act: Callable[[], T]) -> T:
        """Do `act` in the engine's network: what it opens there stays there."""

        def there() -> T:
            with within(self.pid):
                return act()

        # Only the thread moves, and it ends here.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(there).result()


@contextlib.contextmanager
def within(pid: int) -> Iterator[None]:
    """Move this thread, and what it starts from now on, into the network of a process."""
    with open("/proc/self/ns/net") as own:
        namespaces.enter(f"/proc/{pid}/ns/net")
        try:
            yield
        finally:
            namespaces.enter_open(own.fileno())


def compose_command() -> list[str]:
    """Compose as a program of its own, or as a part of `docker`."""
    return ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]


def missing() -> str | None:
    """Why there can be no engine here; None if one may be tried."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a Docker engine of the test's own needs Linux and root"
    for name in ("dockerd", "docker", "unshare", compose_command()[0]):
        if not shutil.which(name):
            return f"{name} is not installed: run `make setup`"
    return None


@contextlib.contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """An engine with its data in `folder`; Unable if it does not start."""
    log = folder / "dockerd.log"
    process = processes.start(
        [
            *_OWN_WORLD, "sh", "-c", _START, "start", "dockerd", f"--data-root={folder}/data",
            f"--exec-root={folder}/exec", f"--pidfile={folder}/docker.pid", f"--host=unix://{folder}/docker.sock",
            "--iptables=false", "--ip-masq=false", "--default-address-pool=base=198.18.0.0/16,size=24",
        ],
        log,
    )  # fmt: skip
    try:
        made = Engine(folder, process.pid)
        _await(made, process, log)
        made.raise_loopback()
        yield made
    finally:
        # Everything ends with the first process of its namespaces; asked politely, `unshare` does not listen.
        process.kill()
        process.wait(10)
        shutil.rmtree(folder / "data", ignore_errors=True)


def _await(made: Engine, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + 60
    while True:
        with contextlib.suppress(AssertionError):
            made.docker("version")
            return
        if process.poll() is not None or time.monotonic() > limit:
            last = (log.read_text().strip().splitlines() or ["it said nothing"])[-1]
            raise Unable(f"dockerd does not run here: {last}")
        time.sleep(0.1)  # no event says that dockerd serves
