"""Starts the children of a sandbox, restarts them when they crash, and ends them when it ends.

Runs detached behind `windowbox up`, or inside a test, a benchmark or a chaos run:

    async with Supervisor.running(folder, Options()) as sandbox:
        await sandbox.kill("nats-server")
        await sandbox.ready("nats-server")
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from sandbox import ownership, processes, roles, stages
from sandbox import state as states
from sandbox.children import Child
from sandbox.nodes import hostresources, routes
from sandbox.nodes.hostresources import HostResources
from sandbox.nodes.node import Node
from sandbox.options import Options
from sandbox.restarter import Restarter
from sandbox.servers import busserver, controlplane
from sandbox.servers.apiserver import ApiServer
from sandbox.servers.ranges import ClusterNetwork
from sandbox.shoots import records, shootchildren
from sandbox.shoots.shootchildren import Shoots
from sandbox.state import State
from windowbox.errors import Refused, Unreachable, WindowboxError

logger = logging.getLogger(__name__)

_STORES = {"etcd": "etcd", "named": "named/zones"}


class Supervisor:
    """The children of one sandbox."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder = folder.absolute()
        self._options = options
        me = processes.identify(os.getpid())
        self.state = State(
            name=folder.name, pid=me.pid, started=me.started, since=time.time(), options=options,
            mark=ownership.new_mark(me),
        )  # fmt: skip
        self.nodes: list[Node] = []
        self._host = controlplane.LOOPBACK
        self._stages: list[list[Restarter]] = []
        self._restarters: dict[str, Restarter] = {}
        self._prepared = asyncio.Event()
        self._shoots: Shoots | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls, folder: Path, options: Options, *, patience: float = 60
    ) -> AsyncIterator[Supervisor]:
        """A sandbox in this process with all children ready; they end with the block, the data is kept."""
        supervisor = cls(folder, options)
        # No TaskGroup: as a fixture of pytest this begins in one task and ends in another.
        running = asyncio.create_task(supervisor.run(), name="supervisor")
        readiness = asyncio.create_task(supervisor.wait_ready(patience), name="readiness")
        try:
            await asyncio.wait([running, readiness], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await readiness
                yield supervisor
        finally:
            readiness.cancel()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    async def run(self) -> None:
        """Keep the sandbox running until cancelled."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # The lock comes first: the state file and the ports belong to its holder.
        with _alone(self.folder):
            try:
                with (
                    hostresources.opened(self.folder, self._options) as resources,
                    routes.laid(
                        self.folder,
                        self._options.addresses,
                        resources.claim if resources else None,
                        resources.plan if resources else None,
                    ) as network,
                ):
                    try:
                        self._prepare(resources, network)
                        await self._keep()
                    finally:
                        # Detached processes (an Envoy that survives its worker) end here, too.
                        ownership.end(self.state.mark)
            except WindowboxError as error:
                self.state.failure = str(error)
                raise
            finally:
                self.state.ready = False
                self._write()

    async def wait_ready(self, patience: float = 60) -> None:
        """Wait until every child is ready."""
        try:
            async with asyncio.timeout(patience):
                await self._prepared.wait()
                await asyncio.gather(*(restarter.ready() for restarter in self._restarters.values()))
        except TimeoutError:
            waiting = [n for n, each in self._restarters.items() if each.state.condition != "ready"]
            raise Unreachable(f"not ready after {patience:.0f} s: {', '.join(waiting)}") from None

    @property
    def names(self) -> list[str]:
        return list(self._restarters)

    @property
    def bus_servers(self) -> list[str]:
        """The NATS servers among the children."""
        return busserver.names(self._options.nats_servers)

    async def ready(self, name: str, *, patience: float = 60) -> None:
        try:
            async with asyncio.timeout(patience):
                await self._restarters[name].ready()
        except TimeoutError:
            raise Unreachable(f"{name} is not ready after {patience:.0f} s") from None

    async def start(self, name: str, *, patience: float = 60) -> None:
        self._restarters[name].start()
        await self.ready(name, patience=patience)

    async def stop(self, name: str) -> None:
        """End a child by SIGTERM; it is not restarted before `start`."""
        await self._restarters[name].stop()

    async def kill(self, name: str) -> None:
        """End a child by SIGKILL. It is restarted soon."""
        await self._restarters[name].kill()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a child: SIGSTOP makes it hang, SIGCONT resumes it."""
        self._restarters[name].signal(number)

    def store(self, name: str) -> Path:
        """The data folder of a server: to copy, roll back or wipe while it is stopped."""
        if name in self.bus_servers:
            return busserver.folder(self.folder, name, len(self.bus_servers)) / "jetstream"
        return self.folder / _STORES[name]

    def wipe(self, name: str) -> None:
        """Remove the data of a stopped server."""
        shutil.rmtree(self.store(name), ignore_errors=True)

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    @property
    def api(self) -> ApiServer:
        """The API server, as an administrator."""
        identity = controlplane.identities(self.folder / "pki", self._host)
        return controlplane.api(identity, self.state.ports["kube-apiserver"])

    def environment(self) -> dict[str, str]:
        return stages.variables(self.folder, self.state)

    def settings_file(self, name: str) -> Path:
        """The settings of a process (`worker-1`), or of the `operator`."""
        return roles.settings_file(self.folder, name)

    def look_at_shoots(self) -> None:
        """Start the processes of Shoots that were recorded, and end those of Shoots that no longer are."""
        if self._shoots:
            self._shoots.look_again()

    def _prepare(self, resources: HostResources | None, network: ClusterNetwork) -> None:
        before = states.read(self.folder)
        self.state.ports = stages.choose_ports(self._options, before.ports if before else {})
        (self.folder / "logs").mkdir(exist_ok=True)
        for stage in stages.stages(self.folder, self._options, self.state.ports, network, resources):
            self._stages.append([self._restarter(child) for child in stage])
        if resources:
            self._host, self.state.site = resources.host, resources.claim.name
            self.nodes = [Node(resources.claim, place, self._restarters) for place in resources.places]

            def processes_of(name: str) -> list[list[Child]]:
                if name == shootchildren.SHARED:
                    return shootchildren.shared(self.folder)
                shoot = records.read(self.folder, name)
                return shootchildren.stages(self.folder, shoot, self.state.ports["etcd"], resources, network)

            self._shoots = Shoots(self.folder, processes_of, self._restarter, self._forget)
        self._write()
        self._prepared.set()

    def _restarter(self, child: Child) -> Restarter:
        """A restarter of this child, which the state shows."""
        marked = dataclasses.replace(child, env={**child.env, ownership.VARIABLE: self.state.mark})
        restarter = Restarter(marked, self.folder / "logs" / f"{child.name}.log", self._write)
        self._restarters[child.name] = restarter
        self.state.children[child.name] = restarter.state
        return restarter

    def _forget(self, name: str) -> None:
        self._restarters.pop(name, None)
        self.state.children.pop(name, None)
        self._write()

    async def _keep(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(k.run(), name=f"keep:{n}") for n, k in self._restarters.items()]
            try:
                for stage in self._stages:
                    for restarter in stage:
                        restarter.start()
                    # Those whose program is still being installed follow when they can.
                    present = [one for one in stage if not one.state.lacks_program()]
                    await asyncio.gather(*(restarter.ready() for restarter in present))
                await (self._shoots.run() if self._shoots else asyncio.Event().wait())
            finally:
                # Later stages end first, so that their logs show no lost connections.
                for stage in reversed(self._stages):
                    await asyncio.gather(*(restarter.stop() for restarter in stage))
                for task in tasks:
                    task.cancel()

    def _write(self) -> None:
        self.state.ready = bool(self._restarters) and all(
            k.state.condition == "ready" for k in self._restarters.values()
        )
        states.write(self.folder, self.state)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """A lock: one supervisor per sandbox. The kernel releases it when the holder dies."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"the sandbox in {folder} is already running") from None
        yield


async def _main(folder: Path) -> None:
    options = Options.model_validate_json((folder / "options.json").read_bytes())
    running = asyncio.current_task()
    assert running is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    supervisor = Supervisor(folder, options)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, supervisor.look_at_shoots)
    with contextlib.suppress(asyncio.CancelledError):
        await supervisor.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(_main(Path(sys.argv[1])))
