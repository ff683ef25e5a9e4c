"""A server of webhooks, and a client that asks as API servers ask."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from sandbox.servers import certificates
from tests.support.admitted import Json, resource
from tests.support.reviews import admission_review, response
from webhooks import table
from webhooks.review import Context, Found, Lookup, Review, Webhook
from webhooks.server import Certificates, Decision, Look, Server
from windowbox.settings.webhooksettings import WebhookSettings

NODE = resource("v1 Node", "one", "", status={"capacity": {"cpu": "2", "pods": "110"}})
MANAGER = resource("apps/v1 Deployment", "machine-controller-manager", "shoot--local--one")
NETWORK_POLICY = resource("networking.k8s.io/v1 NetworkPolicy", "one", "garden", spec={})


@dataclass
class Notes:
    """A journal in memory."""

    kept: list[Decision] = field(default_factory=list)

    def note(self, decision: Decision) -> None:
        self.kept.append(decision)


@dataclass
class Caller:
    """A client that trusts the server's authority."""

    url: str
    session: aiohttp.ClientSession
    notes: Notes
    trust: ssl.SSLContext
    server: Server
    released: threading.Event
    """Until then, `shoot` does not decide."""

    async def ask(
        self, path: str, body: bytes, content: str = "application/json", seconds: int = 5
    ) -> tuple[int, bytes]:
        url, headers = f"{self.url}{path}?timeout={seconds}s", {"Content-Type": content}
        async with self.session.post(url, data=body, headers=headers, ssl=self.trust) as answer:
            return answer.status, await answer.read()

    async def review(self, path: str = "/node", object: Json = NODE, seconds: int = 5) -> tuple[int, Any]:
        """The status and the response about an object."""
        plural = f"{object['kind'].lower()}s".replace("policys", "policies")
        body = orjson.dumps(admission_review(object, plural))
        status, answer = await self.ask(path, body, seconds=seconds)
        return status, response(answer) if status == 200 else answer

    async def begin(
        self, path: str, *, size: int, seconds: int, peer: str = "127.0.0.1"
    ) -> asyncio.StreamReader:
        """Send the headers of a request alone, from the address `peer`."""
        host, _, port = self.url.removeprefix("https://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=self.trust, local_addr=(peer, 0))
        first = f"POST {path}?timeout={seconds}s HTTP/1.1\r\nHost: {host}\r\n"
        head = f"{first}Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()
        self.begun.append(writer)
        return reader

    begun: list[asyncio.StreamWriter] = field(default_factory=list)


async def never(_: Lookup, seconds: float) -> Found:
    await asyncio.Event().wait()
    raise AssertionError


@contextlib.asynccontextmanager
async def asked(tmp_path: Path, look: Look, *others: Webhook) -> AsyncIterator[Caller]:
    """A server that looks objects up so, and a client. `others` take the place of webhooks of their names."""
    ca = certificates.authority(tmp_path)
    pair = certificates.server(ca, tmp_path, "hook", ["127.0.0.1"])
    shown = Certificates()
    shown.use(pair.certificate.read_bytes(), pair.key.read_bytes())
    notes = Notes()
    settings = WebhookSettings(address="127.0.0.1:0")
    released = threading.Event()

    def waits(_: Review, __: Context) -> None:
        released.wait()

    webhooks = {**table.WEBHOOKS, "shoot": replace(table.WEBHOOKS["shoot"], act=waits)}
    webhooks |= {one.registration.name: one for one in others}
    served = Server(webhooks.values(), Context(settings), look, notes)
    trust = ssl.create_default_context(cafile=ca.certificate)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session,
        served.listening(shown) as address,
    ):
        made = Caller(f"https://{address}", session, notes, trust, served, released)
        yield made
        for writer in made.begun:
            writer.transport.abort()
        released.set()


async def allowed(caller: Caller, path: str = "/node", object: Json = NODE) -> bool:
    status, answer = await caller.review(path, object)
    return status == 200 and answer["allowed"] is True
