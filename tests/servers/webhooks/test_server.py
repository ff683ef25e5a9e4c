"""The HTTPS server of webhooks, asked as API servers ask."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.support.reviews import UID, admission_review, mutated, response
from tests.support.rules import rule
from webhooks import table
from webhooks.review import Context, Found, Lookup
from webhooks.server import Certificates, Decision, Server
from windowbox.models.webhooksettings import WebhookSettings
from windowbox.sandbox import certificates

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "one"},
    "status": {"capacity": {"cpu": "2", "pods": "110"}},
}


@dataclass
class Notes:
    """A journal that keeps what it is told."""

    kept: list[Decision] = field(default_factory=list)

    def note(self, decision: Decision) -> None:
        self.kept.append(decision)


@dataclass
class Caller:
    """A client that trusts the server's authority."""

    url: str
    session: aiohttp.ClientSession
    notes: Notes

    async def ask(self, path: str, body: bytes, content: str = "application/json") -> tuple[int, bytes]:
        async with self.session.post(
            f"{self.url}{path}?timeout=5s", data=body, headers={"Content-Type": content}
        ) as answer:
            return answer.status, await answer.read()


async def nothing_else(_: Lookup, seconds: float) -> Found:
    raise AssertionError("no webhook here looks anything up")


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[Caller]:
    ca = certificates.authority(tmp_path)
    pair = certificates.server(ca, tmp_path, "hook", ["127.0.0.1"])
    shown = Certificates()
    shown.use(pair.certificate.read_bytes(), pair.key.read_bytes())
    notes = Notes()
    settings = WebhookSettings(address="127.0.0.1:0")
    server = Server([table.WEBHOOKS["node"]], Context(settings), nothing_else, notes)
    trust = ssl.create_default_context(cafile=ca.certificate)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session,
        server.listening(shown) as address,
    ):
        yield Caller(f"https://{address}", session, notes)


@rule("WF-13", "WF-40", "WF-41", "WF-50")
async def test_a_review_is_answered_over_tls(caller: Caller) -> None:
    status, body = await caller.ask("/node", orjson.dumps(admission_review(NODE, "nodes")))
    told = response(body)
    assert (status, told["uid"], told["allowed"]) == (200, UID, True)
    capacity = mutated(NODE, told)["status"]["capacity"]
    assert capacity == {"cpu": "100", "memory": "100Gi", "pods": "110"}
    assert [decision.review.name for decision in caller.notes.kept] == ["one"]


@rule("WF-40")
async def test_another_content_type_is_answered_with_code_400(caller: Caller) -> None:
    status, body = await caller.ask("/node", b"{}", "text/plain")
    told = response(body)["status"]
    assert (status, told["code"]) == (200, 400)
    assert told["message"] == "contentType=text/plain, expected application/json"


@rule("WF-40")
async def test_a_body_beyond_the_limit_is_answered_with_code_413(caller: Caller) -> None:
    status, body = await caller.ask("/node", b" " * (7 * 1024 * 1024 + 1))
    told = response(body)["status"]
    assert (status, told["code"]) == (200, 413)
    assert told["message"] == "request entity is too large: limit is 7340032 bytes"


async def test_a_big_object_does_not_delay_others(caller: Caller) -> None:
    big = {**NODE, "metadata": {"name": "big"}, "spec": {"taints": [{"key": str(i)} for i in range(200_000)]}}
    long = asyncio.create_task(caller.ask("/node", orjson.dumps(admission_review(big, "nodes"))))
    small = orjson.dumps(admission_review(NODE, "nodes"))
    await caller.ask("/node", small)
    _, body = await long
    assert response(body)["allowed"]


async def test_a_path_that_no_webhook_has_is_not_found(caller: Caller) -> None:
    status, _ = await caller.ask("/elsewhere", b"{}")
    assert status == 404


async def test_clients_without_tls_do_not_disturb_others(caller: Caller) -> None:
    host, _, port = caller.url.removeprefix("https://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /node HTTP/1.1\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    status, _ = await caller.ask("/node", orjson.dumps(admission_review(NODE, "nodes")))
    assert status == 200
