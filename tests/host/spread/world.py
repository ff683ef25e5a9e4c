"""Hosts that share addresses: each a network namespace with a launcher and an edge, on one bridge.

This process is a client on the same bridge, and the node that all traffic goes to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bus import streams, subjects
from bus.transport import consumers
from bus.transport.connection import Bus, connected
from sandbox import processes
from sandbox.nodes import claims, hostresources, iproute, leftovers, network
from sandbox.nodes.addresses import Plan
from sandbox.nodes.claims import Claim
from sandbox.options import Options
from tests.servers.edge.mirror import list_all, see
from tests.servers.ipam import stores
from tests.support import envoyprogram, guardian, namespaces
from tests.support.healthserver import healthy
from tests.support.lbobjects import node, service
from tests.support.natsserver import NatsServer
from tests.support.proxy import Proxy
from tests.support.running import eventually
from windowbox.models.refs import NODES, SERVICES
from windowbox.settings.bussettings import Access
from workers.loadbalancer.edgestate import EdgeState, is_testimony
from workers.loadbalancer.ipam.results import Allocated
from workers.loadbalancer.ipam.store import AddressStore

NODE_PORT = 30080


@dataclass
class Host:
    """A network namespace with a launcher, an edge, and a connection to the bus that can be cut."""

    name: str
    namespace: str
    folder: Path
    bus: Proxy
    settings: dict[str, Any]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, *roles: str) -> None:
        """Start the launcher, or the edge."""
        self.folder.mkdir(exist_ok=True)
        envoys = self.folder / "edge"
        file = self.folder / "settings.yaml"
        file.write_text(yaml.safe_dump(self.settings))
        commands = {
            "launch": [
                "--folder",
                str(envoys),
                "--envoy",
                str(envoyprogram.envoy(self.folder)),
                "--yielding",
            ],
            "edge": ["--settings", str(file)],
        }
        for role in roles:
            argv = ["nsenter", f"--net={network.namespace_path(self.namespace)}", sys.executable]
            with (self.folder / f"{role}.log").open("ab") as log:
                self.running[role] = subprocess.Popen(
                    processes.dying_with_parent([*argv, "-m", "windowbox", role, *commands[role]]),
                    stdout=log,
                    stderr=log,
                )

    async def stop(self, role: str) -> None:
        if child := self.running.pop(role, None):
            child.terminate()
            await asyncio.to_thread(child.wait)  # this process forwards its bus meanwhile

    def addresses(self) -> set[str]:
        """The addresses of its links, beside those of the host itself."""
        shown = iproute.asked("-n", self.namespace, "address", "show")
        found = (one for link in shown for one in link["addr_info"])
        return {one["local"] for one in found if one["prefixlen"] in (32, 128) and one["scope"] == "global"}

    def log(self, role: str) -> str:
        return (self.folder / f"{role}.log").read_text()


@dataclass
class Spread:
    """Some hosts, and what a test does to them."""

    claim: Claim
    plan: Plan
    bus: Bus
    store: AddressStore
    hosts: list[Host]

    def host(self, name: str) -> Host:
        return next(one for one in self.hosts if one.name == name)

    def die(self, host: Host) -> None:
        """Nothing of the host works any more, at once: its link, its programs."""
        network.unplug(self.claim, host.name)
        for pid in iproute.run("ip", "netns", "pids", host.namespace).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        host.running.clear()

    async def serve(self, name: str) -> tuple[str, ...]:
        """Create a Service with an address of each family, as a worker does."""
        answer = await stores.allocate(self.store, name, stores.BOTH)
        assert isinstance(answer, Allocated), answer
        families = ["IPv4", "IPv6"]
        made = service(metadata={"name": name, "namespace": "shop", "uid": name}, ipFamilies=families)
        await see(self.bus, SERVICES, name, made, "shop")
        return tuple(answer.addresses.values())

    async def holders(self) -> dict[str, str]:
        """By Service, the host that its state names."""
        bucket, found = streams.EDGES, dict[str, str]()
        async for stored in consumers.snapshot(self.bus, f"KV_{bucket}", [subjects.entry(bucket, ">")]):
            key = subjects.without(f"$KV.{bucket}", stored.subject)
            if stored.data and not is_testimony(key):
                found[subjects.ref(key).name] = EdgeState.model_validate_json(stored.data).host
        return found


@contextlib.asynccontextmanager
async def opened(folder: Path, nats: NatsServer, names: Sequence[str]) -> AsyncIterator[Spread]:
    """Hosts of these names, with their programs running; removed even if this process is killed."""
    with _network(tuple(names)) as (claim, plan):
        prefixes = [str(list(plan.nodes_v4.subnets(new_prefix=26))[2]), f"{plan.nodes_v6[0x1000]}/116"]
        async with contextlib.AsyncExitStack() as stack:
            bus = await stack.enter_async_context(connected(Access(nats.url)))
            await streams.ensure(bus)
            store = await stack.enter_async_context(stores.settled(bus, *prefixes))
            gate, hosts = str(plan.host_v4), []
            for name in names:
                proxy, listener = Proxy(nats.port), _inside(claim.namespace(name))
                server = await asyncio.start_server(proxy.serve, sock=listener)
                stack.callback(server.close)
                stack.callback(proxy.cut)
                url = f"nats://127.0.0.1:{listener.getsockname()[1]}"
                balancing = {
                    "ranges": [{"prefixes": prefixes}],
                    "host": name,
                    "attachment": "launcher",
                    "folder": str(folder / name / "edge"),
                }
                settings = {"nats": {"url": url}, "loadbalancer": balancing, "metrics": "127.0.0.1:0"}
                hosts.append(Host(name, claim.namespace(name), folder / name, proxy, settings))
            for addr in (gate, str(plan.host_v6)):
                for port, answer in ((10256, healthy), (NODE_PORT, _echo)):
                    server = await asyncio.start_server(answer, addr, port)
                    stack.callback(server.close)
            await see(bus, NODES, "one", node("one", gate, str(plan.host_v6)))
            await list_all(bus, SERVICES, NODES)
            for host in hosts:
                stack.push_async_callback(host.stop, "launch")
                stack.push_async_callback(host.stop, "edge")
                host.start("launch", "edge")
            yield Spread(claim, plan, bus, store, hosts)


def _inside(namespace: str) -> socket.socket:
    """A socket on the loopback of a network namespace: a bus elsewhere would need TLS."""
    with open("/proc/thread-self/ns/net") as own:
        namespaces.enter(network.namespace_path(namespace))
        try:
            return socket.create_server(("127.0.0.1", 0))
        finally:
            namespaces.enter_open(own.fileno())


@contextlib.contextmanager
def _network(names: tuple[str, ...]) -> Iterator[tuple[Claim, Plan]]:
    leftovers.clear()
    with guardian.guarded(), hostresources.claimed(Options(), names) as (claim, plan):
        claims.begin(claim)
        try:
            network.build(claim, plan)
            yield claim, plan
        finally:
            leftovers.clear_one(claim)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(4096):
            writer.write(data)
            await writer.drain()
    writer.close()


@dataclass
class Connection:
    """A connection to a Service, through whichever host has its address."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def echoes(self) -> bool:
        """Whether it still works."""
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(5):
                self.writer.write(b"hello")
                return await self.reader.readexactly(5) == b"hello"
        return False


async def connect(address: str, patience: float = 1.0) -> Connection | None:
    """A connection that works; None if there is none."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(patience):
            made = Connection(*await asyncio.open_connection(address, 80))
            if await made.echoes():
                return made
            made.writer.close()
    return None


async def connection(address: str) -> Connection:
    """A connection that works, once there is one."""
    found = await eventually(lambda: connect(address), 30)
    assert found
    return found
