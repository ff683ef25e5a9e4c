"""Requests over kept connections, to a server that writes what a test says."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Iterable

import pytest

from tests.support.running import eventually, soon
from windowbox.clients.kubernetes import plainrequests
from windowbox.clients.kubernetes.plainrequests import Answer, Connections, Overlong

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: today\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Server:
    """Answers each request with the parts of the next of `answers`; None ends the connection."""

    def __init__(self, *answers: Iterable[bytes | None]) -> None:
        self._answers = iter(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.partition(b"Content-Length: ")[2].split(b"\r\n")[0]
                self.requests.append(head + await reader.readexactly(int(length or 0)))
                for part in next(self._answers, ()):
                    if part is None:
                        self.open -= 1
                        return
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)  # so that parts may arrive one by one
        self.open -= 1


@contextlib.asynccontextmanager
async def served(server: Server, most: int = 2) -> AsyncIterator[Connections]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    connections = Connections(f"http://127.0.0.1:{port}/base/", ssl.create_default_context(), most)
    try:
        yield connections
    finally:
        connections.close()
        listening.close()


def at_most(size: int) -> Callable[[int], int]:
    return lambda _: size


async def ask(connections: Connections, method: str = "GET", body: bytes = b"", size: int = 100) -> Answer:
    return await soon(connections.ask(method, "/path?a=b", {"Accept": "x"}, body, at_most(size)))


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        pytest.param(HEAD + b"hello", b"hello", id="length"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"hello", b"hello", id="after-continue"),
        pytest.param(CHUNKED + b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n", b"hello", id="chunks"),
        pytest.param(CHUNKED + b"5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n", b"hello", id="trailers"),
        pytest.param(CHUNKED + b"6\r\nhe\r\nlo\r\n0\r\n\r\n", b"he\r\nlo", id="line-break-in-chunk"),
        pytest.param(CHUNKED + b"0\r\n\r\n", b"", id="no-chunk"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", b"", id="no-content"),
    ],
)
@pytest.mark.parametrize("split", [False, True], ids=["at-once", "byte-by-byte"])
async def test_answers_are_read_whole_and_connections_kept(answer: bytes, body: bytes, split: bool) -> None:
    parts = [bytes([byte]) for byte in answer] if split else [answer]
    server = Server(parts, parts)
    async with served(server) as connections:
        for _ in range(2):
            assert (await ask(connections)).body == body
    assert server.connections == 1
    assert server.requests[0].startswith(b"GET /base/path?a=b HTTP/1.1\r\nHost: 127.0.0.1:")


async def test_a_request_has_its_headers_and_body() -> None:
    server = Server([HEAD + b"hello"])
    async with served(server) as connections:
        answer = await ask(connections, "PATCH", b"{}")
    assert (answer.status, answer.headers["date"]) == (200, "today")
    assert server.requests[0].endswith(b"\r\nAccept: x\r\nContent-Length: 2\r\n\r\n{}")


async def test_an_answer_may_end_with_its_connection() -> None:
    server = Server([b"HTTP/1.1 502 Bad\r\n\r\noh", None], [HEAD + b"hello"])
    async with served(server) as connections:
        assert (await ask(connections))[::2] == (502, b"oh")
        assert (await ask(connections)).body == b"hello"
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(HEAD + b"hell", id="half-a-body"),
        pytest.param(CHUNKED + b"5\r\nhello\r\n", id="no-last-chunk"),
        pytest.param(b"HTTP/1.1 200", id="half-a-head"),
        pytest.param(b"SSH-2.0\r\n\r\n", id="not-http"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", id="negative-length"),
        pytest.param(CHUNKED + b"-1\r\n\r\n", id="negative-chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\nno header\r\n\r\n", id="no-header"),
    ],
)
async def test_what_is_no_answer_is_an_error(answer: bytes) -> None:
    async with served(Server([answer, None])) as connections:
        with pytest.raises(ConnectionError):
            await ask(connections)


@pytest.mark.parametrize("answer", [HEAD + b"hello", CHUNKED + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"])
async def test_an_answer_has_a_limit(answer: bytes) -> None:
    async with served(Server([answer])) as connections:
        with pytest.raises(Overlong):
            await ask(connections, size=4)


async def test_a_head_has_a_limit() -> None:
    async with served(Server([b"HTTP/1.1 200 OK\r\n" + b"x" * (1 << 17)])) as connections:
        with pytest.raises(ConnectionError):
            await ask(connections)


async def test_a_connection_that_the_server_has_ended_is_replaced() -> None:
    """It may have ended it while a request was on its way; one that changes something is not repeated."""
    server = Server([HEAD + b"hello"], [None], [HEAD + b"again"], [None])
    async with served(server) as connections:
        await ask(connections)
        assert (await ask(connections)).body == b"again"
        with pytest.raises(ConnectionError):
            await ask(connections, "PATCH")
    assert [request.split()[0] for request in server.requests] == [b"GET", b"GET", b"GET", b"PATCH"]


async def test_a_server_that_asks_for_it_gets_a_new_connection() -> None:
    closing = HEAD.replace(b"Date", b"Connection: close\r\nDate") + b"hello"
    server = Server([closing], [HEAD + b"hello!!"], [HEAD + b"hello"])
    async with served(server) as connections:
        for _ in range(3):  # after the second answer there was more than its length
            assert (await ask(connections)).body == b"hello"
    assert server.connections == 3


async def test_a_cancelled_request_leaves_no_answer_to_the_next() -> None:
    server = Server([], [HEAD + b"hello"])
    async with served(server, most=1) as connections:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await ask(connections)
        assert (await ask(connections)).body == b"hello"
    assert server.connections == 2


async def test_requests_wait_for_a_connection() -> None:
    server = Server(*[[HEAD + b"hello"]] * 10)
    async with served(server, most=2) as connections:
        await asyncio.gather(*(ask(connections) for _ in range(10)))
    assert server.connections == 2


async def test_unused_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plainrequests, "_IDLE", 0.02)
    server = Server([HEAD + b"hello"])
    async with served(server) as connections:
        await ask(connections)
        await eventually(lambda: is_left(server))


async def is_left(server: Server) -> bool:
    return server.open == 0


async def test_a_closed_session_ends_requests_in_flight() -> None:
    server = Server([])
    async with served(server) as connections:
        asking = asyncio.create_task(ask(connections))
        await eventually(lambda: is_asked(server))
        connections.close()
        with pytest.raises(ConnectionError):
            await asking
        with pytest.raises(ConnectionError):
            await ask(connections)


async def is_asked(server: Server) -> bool:
    return bool(server.requests)


async def test_a_header_cannot_begin_another_one() -> None:
    async with served(Server()) as connections:
        with pytest.raises(ConnectionError):
            await connections.ask("GET", "/", {"Authorization": "a\r\nHost: b"}, b"", at_most(1))
