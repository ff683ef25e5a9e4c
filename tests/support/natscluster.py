"""Three NATS servers that are one bus, any of which may step down, die, or be cut off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client

from sandbox import processes
from sandbox.nodes import network
from sandbox.programs import binaries
from sandbox.servers.controlplane import healthy
from tests.support import servers
from tests.support.natsserver import Startable
from tests.support.natstls import Tls
from windowbox.settings.bussettings import Access

SIZE = 3


def on_three(fixture: str = "nats_url") -> pytest.MarkDecorator:
    """For a test that elections may break: one server alone is left to the nightly run."""
    servers = [pytest.param("one", marks=pytest.mark.long), "three"]
    return pytest.mark.parametrize(fixture, servers, indirect=True)


@dataclass(frozen=True)
class Seat:
    """Where a server listens, for clients, for whoever asks for its health, and for the other servers."""

    address: str
    port: int
    monitor: int
    route: int
    namespace: str = ""
    """A network namespace; that of this process if none is named."""
    tls: Tls | None = None
    """How it speaks to clients, if its address is not one of loopback."""


def _on_loopback() -> Seat:
    return Seat("127.0.0.1", processes.free_port(), processes.free_port(), processes.free_port())


class Member:
    """One of the servers."""

    def __init__(self, folder: Path, number: int, seats: Sequence[Seat]) -> None:
        self.name, self.seat = f"n{number}", seats[number]
        self.port = self.seat.port
        self.folder = folder / self.name
        self._seats = seats
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        configuration = self.folder / "nats-server.conf"
        configuration.write_text(json.dumps(self._configuration(), indent=2))
        argv = [str(binaries.find("nats-server")), "--config", str(configuration)]
        if self.seat.namespace:
            argv = ["nsenter", f"--net={network.namespace_path(self.seat.namespace)}", *argv]
        log = self.folder / "nats-server.log"
        self.process = processes.start(argv, log)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process:
            self.process.send_signal(how)
            self.process.send_signal(signal.SIGCONT)
            self.process.wait(60)
            self.process = None

    def healthy(self) -> bool:
        """Whether it has caught up with the others in everything."""
        return healthy(f"http://{self.seat.address}:{self.seat.monitor}/healthz")

    def _configuration(self) -> dict[str, object]:
        seat = self.seat
        tls = (
            {"cert_file": str(seat.tls.server.certificate), "key_file": str(seat.tls.server.key)}
            if seat.tls
            else {}
        )
        return {
            "server_name": self.name,
            "listen": f"{seat.address}:{seat.port}",
            "http": f"{seat.address}:{seat.monitor}",
            "max_payload": 8 << 20,
            "jetstream": {"store_dir": str(self.folder)},
            **({"tls": tls} if tls else {}),
            "cluster": {
                # Of this cluster alone: a port that is free for a moment may be chosen by two.
                "name": f"test-{'-'.join(str(one.route) for one in self._seats)}",
                "listen": f"{seat.address}:{seat.route}",
                "routes": [f"nats://{other.address}:{other.route}" for other in self._seats],
                # Tests that go through a proxy must not be led past it.
                "no_advertise": True,
            },
        }


class NatsCluster(Startable):
    """Three servers of one cluster."""

    def __init__(self, folder: Path, seats: Sequence[Seat] = ()) -> None:
        self._folder = folder
        seats = seats or [_on_loopback() for _ in range(SIZE)]
        self.members = [Member(folder, number, seats) for number in range(SIZE)]

    @property
    def url(self) -> str:
        return ",".join(f"nats://{member.seat.address}:{member.port}" for member in self.members)

    @property
    def access(self) -> Access:
        tls = self.members[0].seat.tls
        return Access(self.url, ca=tls.ca.certificate if tls else None)

    def start(self) -> None:
        for member in self.members:
            member.start()
        self.wait()

    def wait(self) -> None:
        """Wait until all servers have caught up."""
        for member in self.members:
            assert member.process
            servers.wait(member.healthy, member.process, member.name, member.folder / "nats-server.log")

    def stop(self) -> None:
        for member in self.members:
            member.stop()

    def clear(self) -> None:
        """Forget everything, without a stop."""
        asyncio.run(_without_streams(self.access))

    @contextlib.contextmanager
    def unrest(self, every: float) -> Iterator[None]:
        """Have leaders of streams and consumers step down at random, one each `every` seconds."""
        over = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(_unrest(self.access, every, over)))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


async def _connected(access: Access) -> Client:
    return await nats.connect(access.servers, tls=access.context() if access.tls else None)


async def _without_streams(access: Access) -> None:
    client, left = await _connected(access), True
    try:
        async with asyncio.timeout(60):
            while left:
                with contextlib.suppress(nats.errors.TimeoutError):  # nobody answers while there is no leader
                    left = bool(await _delete_streams(client))
    finally:
        await client.close()


async def _delete_streams(client: Client) -> list[str]:
    """Delete those that there are, and return their names."""
    found = await _names(client, "STREAM.NAMES", "streams")
    for name in found:
        await _asked(client, f"STREAM.DELETE.{name}")
    return found


async def _unrest(access: Access, every: float, over: threading.Event) -> None:
    client = await _connected(access)
    try:
        while not over.is_set():
            with contextlib.suppress(Exception):
                async with asyncio.timeout(1):
                    await step_down(client)
            await asyncio.sleep(every)  # leaders step down at an interval
    finally:
        await client.close()


async def step_down(client: Client) -> None:
    """Have a random stream, or one of its consumers, choose another leader."""
    found = await _names(client, "STREAM.NAMES", "streams")
    if not found:
        return
    stream = random.choice(found)
    consumers = await _names(client, f"CONSUMER.NAMES.{stream}", "consumers")
    if consumers and random.random() < 0.5:
        await _asked(client, f"CONSUMER.LEADER.STEPDOWN.{stream}.{random.choice(consumers)}")
    else:
        await _asked(client, f"STREAM.LEADER.STEPDOWN.{stream}")


async def _names(client: Client, request: str, field: str) -> list[str]:
    return list((await _asked(client, request)).get(field) or ())


async def _asked(client: Client, request: str) -> dict[str, Any]:
    answer = await client.request(f"$JS.API.{request}", b"", timeout=5)
    decoded: dict[str, Any] = json.loads(answer.data)
    return decoded
