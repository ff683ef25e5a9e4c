"""A NATS server that knows the roles, for tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nats
from nats.aio.client import Client

from bus import subjects
from bus.permissions import Role
from sandbox import processes
from sandbox.programs import binaries
from sandbox.servers import busserver
from tests.support import servers
from windowbox.settings.bussettings import Access


@dataclass(frozen=True)
class RoleServer:
    """A server with a user for each role, as the sandbox has it."""

    url: str
    passwords: dict[str, str]
    store: Path

    def access(self, role: Role) -> Access:
        return Access(self.url, role, self.passwords[role])

    @contextlib.asynccontextmanager
    async def speaking(self, role: Role) -> AsyncIterator[Speaker]:
        """A plain connection of a role, which records permission errors."""
        speaker = Speaker()
        speaker.client = await nats.connect(
            self.url,
            user=role,
            password=self.passwords[role],
            inbox_prefix=subjects.inbox(role),
            error_cb=speaker.note,
        )
        try:
            yield speaker
        finally:
            await speaker.client.close()


@dataclass
class Speaker:
    client: Client = field(default_factory=Client)
    _refusals: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    async def note(self, error: Exception) -> None:
        self._refusals.put_nowait(str(error))

    async def refusal(self) -> str:
        """The next permission error. Permitted requests cause none."""
        async with asyncio.timeout(60):
            return await self._refusals.get()


@contextlib.contextmanager
def role_server(folder: Path) -> Iterator[RoleServer]:
    port, monitor = processes.free_port(), processes.free_port()
    secret = busserver.passwords(folder / "passwords.json")
    child = busserver.nats_server(
        binaries.find("nats-server"), folder, busserver.Listening(port, monitor), secret, "2m"
    )
    with servers.running(child, folder):
        yield RoleServer(f"nats://127.0.0.1:{port}", secret, folder / "jetstream")
