"""Real servers for tests. All of them end with the test process, even if that is killed."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox import files, processes
from sandbox.children import Child
from sandbox.programs import binaries
from sandbox.servers import certificates, controlplane, kubeconfigs, manifests, zoneserver
from sandbox.servers.apiserver import ApiServer
from windowbox.errors import Missing
from windowbox.rights import rbac


@dataclass
class NameServer:
    """A BIND 9 with the zone `zone`, which `key` may update. `stop` and `start` keep its data."""

    port: int
    folder: Path
    key: zoneserver.Key | None
    zone: str = zoneserver.ZONE
    process: subprocess.Popen[bytes] | None = None
    host: str = "127.0.0.1"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        program = binaries.unconfined(binaries.find("named"))
        child = zoneserver.named(program, self.folder, self.port, self.key, self.zone)
        self.process = start(child, self.folder)

    def stop(self) -> None:
        if self.process:
            end(self.process)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait(60)

    def pause(self) -> None:
        """Nobody is answered until `resume`."""
        assert self.process
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGCONT)


@dataclass
class Server:
    """A program that can be killed, and started again."""

    child: Child
    folder: Path
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def start_again(self) -> None:
        self.process = start(self.child, self.folder)


@contextlib.contextmanager
def restartable(child: Child, folder: Path) -> Iterator[Server]:
    server = Server(child, folder, start(child, folder))
    try:
        yield server
    finally:
        end(server.process)


@dataclass(frozen=True)
class ControlPlane:
    """An API server with our kinds and rights; `kubeconfig` is an administrator's."""

    url: str
    kubeconfig: Path
    api: ApiServer
    kubeconfigs: dict[str, Path] = field(default_factory=dict)
    """One for each role: watcher, worker, patcher."""
    server: Server | None = None


@contextlib.contextmanager
def nats_server(folder: Path, *, port: int = -1, options: tuple[str, ...] = ()) -> Iterator[str]:
    """A NATS server with JetStream and its store in `folder`; gives its URL."""
    server = processes.start(
        [
            str(binaries.find("nats-server")), "--addr=127.0.0.1", f"--port={port}",
            f"--ports_file_dir={folder}", "--jetstream", f"--store_dir={folder}", *options,
        ],
        folder / "nats-server.log",
    )  # fmt: skip
    try:
        yield _announced_url(server, folder)
    finally:
        end(server)


@contextlib.contextmanager
def name_server(
    folder: Path, *, key: zoneserver.Key | None, zone: str = zoneserver.ZONE
) -> Iterator[NameServer]:
    server = NameServer(processes.free_port(), folder, key, zone)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def control_plane(folder: Path, *, controllers: bool = False, audit: bool = False) -> Iterator[ControlPlane]:
    """etcd and an API server, with the kinds in deploy/crds and the rights of each role.

    With `controllers`, namespaces end and owned objects are deleted with their owners; with `audit`, every
    request is written to audit.log.
    """
    identity = controlplane.identities(folder / "pki")
    port, etcd_port = processes.free_port(), processes.free_port()
    api = controlplane.api(identity, port)
    etcd = controlplane.etcd(binaries.find("etcd"), folder / "etcd", etcd_port, processes.free_port())
    extra = controlplane.audit_arguments(folder) if audit else []
    server = controlplane.apiserver(binaries.find("kube-apiserver"), identity, port, etcd_port, extra)
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(etcd, folder))
        process = stack.enter_context(restartable(server, folder))
        manifests.apply_all(api)
        if controllers:
            program, file = binaries.find("kube-controller-manager"), folder / "controllers.kubeconfig"
            child = controlplane.controllers(program, identity, file, processes.free_port(), port)
            stack.enter_context(running(child, folder))
        kubeconfig = folder / "admin.kubeconfig"
        files.write_private(kubeconfig, kubeconfigs.text(api.url, api.ca, api.user))
        yield ControlPlane(api.url, kubeconfig, api, _role_kubeconfigs(folder, api), process)


@contextlib.contextmanager
def running(child: Child, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The child, ready; ended at the end."""
    process = start(child, folder)
    try:
        yield process
    finally:
        end(process)


def start(child: Child, folder: Path) -> subprocess.Popen[bytes]:
    """Start `child` and wait until it is ready; its output goes to a log in `folder`."""
    log = folder / f"{child.name}.out"
    process = processes.start(child.argv, log, env=dict(child.env))
    try:
        wait(child.ready, process, child.name, log)
    except BaseException:
        end(process)
        raise
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(60)


def missing(*names: str) -> str | None:
    """Why tests that need these programs cannot run here; None if they can."""
    for name in names:
        try:
            binaries.find(name)
        except Missing as error:
            return str(error)
    return None


def need(*names: str) -> None:
    """Skip the test where one of these programs is missing."""
    if reason := missing(*names):
        pytest.skip(reason)


def _announced_url(server: subprocess.Popen[bytes], folder: Path) -> str:
    ports, log = folder / f"nats-server_{server.pid}.ports", folder / "nats-server.log"
    # The server writes the file in place, so it may be seen half written.
    wait(lambda: _url(ports) is not None, server, "nats-server", log)
    url = _url(ports)
    assert url is not None
    return url


def _url(ports: Path) -> str | None:
    try:
        return str(json.loads(ports.read_text())["nats"][0])
    except (FileNotFoundError, ValueError):
        return None


def wait(ready: Callable[[], bool], process: subprocess.Popen[bytes], name: str, log: Path) -> None:
    limit = time.monotonic() + 60
    while not ready():
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        if time.monotonic() > limit:
            raise TimeoutError(f"{name} is not ready after a minute:\n{log.read_text()[-2000:]}")
        time.sleep(0.01)  # what a program needs to be ready differs, and few can tell it


def _role_kubeconfigs(folder: Path, api: ApiServer) -> dict[str, Path]:
    paths = {}
    for role in rbac.RULES:
        paths[role] = folder / f"{role}.kubeconfig"
        user = certificates.client(api.ca, folder / "pki", rbac.user(role))
        files.write_private(paths[role], kubeconfigs.text(api.url, api.ca, user))
    return paths
