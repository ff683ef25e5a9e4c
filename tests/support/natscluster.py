"""Three NATS servers that are one bus, any of which may step down, die, or be cut off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from tests.support import servers
from windowbox.sandbox import binaries, processes
from windowbox.sandbox.controlplane import healthy

SIZE = 3


class Member:
    """One of the servers."""

    def __init__(self, folder: Path, number: int, routes: Sequence[int]) -> None:
        self.name = f"n{number}"
        self.port, self.monitor = processes.free_port(), processes.free_port()
        self.folder = folder / self.name
        self._route, self._routes = routes[number], routes
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        configuration = self.folder / "nats-server.conf"
        configuration.write_text(json.dumps(self._configuration(), indent=2))
        argv = [str(binaries.find("nats-server")), "--config", str(configuration)]
        log = self.folder / "nats-server.log"
        self.process = processes.start(argv, log)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process:
            self.process.send_signal(how)
            self.process.send_signal(signal.SIGCONT)
            self.process.wait(10)
            self.process = None

    def healthy(self) -> bool:
        """Whether it has caught up with the others in everything."""
        return healthy(f"http://127.0.0.1:{self.monitor}/healthz")

    def _configuration(self) -> dict[str, object]:
        return {
            "server_name": self.name,
            "listen": f"127.0.0.1:{self.port}",
            "http": f"127.0.0.1:{self.monitor}",
            "max_payload": 8 << 20,
            "jetstream": {"store_dir": str(self.folder)},
            "cluster": {
                "name": "test",
                "listen": f"127.0.0.1:{self._route}",
                "routes": [f"nats://127.0.0.1:{port}" for port in self._routes],
                # Tests that go through a proxy must not be led past it.
                "no_advertise": True,
            },
        }


class NatsCluster:
    """Servers that keep their addresses when they are stopped, emptied and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        routes = [processes.free_port() for _ in range(SIZE)]
        self.members = [Member(folder, number, routes) for number in range(SIZE)]

    @property
    def url(self) -> str:
        return ",".join(f"nats://127.0.0.1:{member.port}" for member in self.members)

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

    def restart(self) -> None:
        self.stop()
        self.start()

    def wipe(self) -> None:
        """Stop, and forget everything."""
        self.stop()
        shutil.rmtree(self._folder)

    def clear(self) -> None:
        """Forget everything, without a stop."""
        asyncio.run(_without_streams(self.url))

    @contextlib.contextmanager
    def unrest(self, every: float) -> Iterator[None]:
        """Have leaders of streams and consumers step down at random, one each `every` seconds."""
        over = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(_unrest(self.url, every, over)))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


async def _without_streams(url: str) -> None:
    client = await nats.connect(url.split(","))
    try:
        for name in await _names(client, "STREAM.NAMES", "streams"):
            await _asked(client, f"STREAM.DELETE.{name}")
    finally:
        await client.close()


async def _unrest(url: str, every: float, over: threading.Event) -> None:
    client = await nats.connect(url.split(","))
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
