"""Peers that flood the webhooks with half requests: others are answered, and memory is bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import orjson
import pytest
import uvloop

from tests.servers.webhooks.callers import NODE, Caller, allowed, asked, never
from tests.support.admitted import resource
from tests.support.reviews import admission_review
from webhooks import connections
from webhooks.server import _AT_ONCE
from windowbox.models.webhooks import Target

PLACES, RESERVE = 32, 8
PEERS = [f"127.0.0.{number}" for number in range(2, 10)]
HEAD = "POST /node HTTP/1.1\r\nHost: a\r\n"
REVIEW = orjson.dumps(admission_review(NODE, "nodes"))
CONFIG_MAP = resource("v1 ConfigMap", "one", "kube-system", data={"config.yaml": " " * 20_000})


@pytest.fixture
async def caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Caller]:
    monkeypatch.setattr(connections, "_MOST", PLACES)
    async with asked(tmp_path, never) as made:
        yield made


async def half_sent(caller: Caller, peer: str, number: int) -> list[asyncio.StreamReader]:
    """So many requests of a peer without their bodies, as far as the server accepts them."""
    begun = (caller.begin("/node", size=len(REVIEW), seconds=30, peer=peer) for _ in range(number))
    made = await asyncio.gather(*begun, return_exceptions=True)
    return [one for one in made if not isinstance(one, BaseException)]


async def by_another_connection(caller: Caller, peer: str = "127.0.0.1") -> bool:
    """Whether a new client is answered."""
    connector = aiohttp.TCPConnector(ssl=caller.trust, local_addr=(peer, 0))
    headers = {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(f"{caller.url}/node?timeout=5s", data=REVIEW, headers=headers) as answer,
    ):
        return answer.status == 200


@pytest.mark.parametrize("former", [False, True], ids=["new", "answered-before"])
@pytest.mark.parametrize("peers", [PEERS, ["127.0.0.1"]], ids=["of-others", "of-itself"])
async def test_a_peer_is_answered_during_a_flood_of_half_requests(
    caller: Caller, peers: list[str], former: bool
) -> None:
    if former:
        assert await by_another_connection(caller)
    for peer in peers:
        await half_sent(caller, peer, 2 * PLACES // len(peers))
    for _ in range(3):
        assert await by_another_connection(caller)
    assert len(caller.server._connections) <= PLACES


async def test_peers_that_were_answered_cannot_take_all_places(caller: Caller) -> None:
    for peer in PEERS:
        assert await by_another_connection(caller, peer)
        await half_sent(caller, peer, PLACES)
    assert await by_another_connection(caller)
    assert len(caller.server._connections) <= PLACES


async def test_connections_without_a_handshake_take_no_place_of_others(caller: Caller) -> None:
    host, _, port = caller.url.removeprefix("https://").rpartition(":")
    for peer in PEERS:
        for _ in range(PLACES):
            _, writer = await asyncio.open_connection(host, int(port), local_addr=(peer, 0))
            caller.begun.append(writer)
    assert await by_another_connection(caller)
    assert len(caller.server._connections) <= PLACES


async def test_strangers_leave_places_to_peers_that_were_answered(caller: Caller) -> None:
    assert await by_another_connection(caller)
    kept = await half_sent(caller, "127.0.0.1", RESERVE)
    mine = list(caller.begun)
    for number in range(2 * PLACES):  # each one has fewer connections than the peer that was answered
        await half_sent(caller, f"127.0.1.{number}", 1)
    for writer in mine:
        writer.write(REVIEW)
    assert [(await one.readline()).split()[1] for one in kept] == [b"200"] * RESERVE


async def test_a_body_that_does_not_come_is_given_up(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_LAG", 0.1)
    for reader in await half_sent(caller, "127.0.0.1", 3):
        assert (await reader.readline()).split()[1] == b"408"


async def test_a_body_that_comes_steadily_is_read(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_LAG", 2.0)
    monkeypatch.setattr(connections, "_RATE", 1)
    (reader,) = await half_sent(caller, "127.0.0.1", 1)
    for at in range(0, len(REVIEW), len(REVIEW) // 3):
        # The parts are late one by one, and longer than `_LAG` together.
        await asyncio.sleep(0.8)
        caller.begun[-1].write(REVIEW[at : at + len(REVIEW) // 3])
    assert (await reader.readline()).split()[1] == b"200"


async def test_large_bodies_of_one_peer_leave_memory_to_others(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_HELD_BY_ONE", 1 << 20)
    reader = await caller.begin("/node", size=3 << 20, seconds=5, peer="127.0.0.2")
    caller.begun[-1].write(b" " * (2 << 20))
    assert (await reader.readline()).split()[1] == b"429"
    half = await caller.begin("/node", size=1 << 20, seconds=5, peer="127.0.0.2")
    caller.begun[-1].write(b" " * (1 << 19))
    large = resource("v1 Node", "large", "", metadata={"annotations": {"a": "b" * (1 << 19)}})
    assert await allowed(caller, object=large)
    assert not half.at_eof()


async def test_small_bodies_of_many_values_count_as_large(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_HELD", 1 << 20)
    status, body = await caller.ask("/node", b"[" + b"[]," * 16_000 + b"[]]")
    assert (status, body) == (429, b"the webhook has too many large requests")
    assert await allowed(caller)


async def test_a_decision_weighs_what_it_takes_in_memory(caller: Caller) -> None:
    await caller.review(object={**NODE, "spec": {"taints": [[]] * 10_000}})
    await caller.review(object={**NODE, "spec": {"taints": "x" * 30_000}})
    many, long = caller.notes.kept
    assert many.weight > 20 * long.weight


@pytest.mark.parametrize(
    "after",
    [
        "Transfer-Encoding: chunked\r\n\r\nnonsense",
        "Transfer-Encoding: chunked\r\n\r\n1\r\n \r\nnonsense",
        "nonsense\r\n",
    ],
    ids=["chunk", "second-chunk", "head"],
)
async def test_malformed_requests_are_refused_without_a_traceback(
    caller: Caller, caplog: pytest.LogCaptureFixture, after: str
) -> None:
    host, _, port = caller.url.removeprefix("https://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=caller.trust)
    caller.begun.append(writer)
    writer.write(f"{HEAD}Content-Type: application/json\r\n{after}\r\n".encode())
    assert (await reader.readline()).split()[1] == b"400"
    assert caplog.text == ""


async def test_requests_that_are_given_up_take_no_place_in_the_thread(caller: Caller) -> None:
    body = orjson.dumps(admission_review(CONFIG_MAP, "configmaps"))
    for peer in PEERS:
        for _ in range(PLACES // len(PEERS) - 1):
            await caller.begin("/shoot", size=len(body), seconds=30, peer=peer)
            caller.begun[-1].write(body)
    room = caller.server._bulkheads[Target.SHOOT].room
    while room._value == _AT_ONCE:  # noqa: ASYNC110
        # No event shows that the thread has work.
        await asyncio.sleep(0.01)
    for writer in caller.begun:
        writer.transport.abort()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(10):
            while room._value < _AT_ONCE:  # noqa: ASYNC110
                # Nor that it has none; their own time limit is 30 s.
                await asyncio.sleep(0.01)
    assert room._value == _AT_ONCE


def test_the_server_works_on_uvloop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes run on uvloop, whose transports are of no class of asyncio."""
    monkeypatch.setattr(connections, "_MOST", PLACES)

    async def answered_beside_a_flood() -> bool:
        async with asked(tmp_path, never) as caller:
            await half_sent(caller, "127.0.0.2", 2 * PLACES)
            return await by_another_connection(caller)

    assert uvloop.run(answered_beside_a_flood())
