"""The launcher answers few, short requests: others are refused, and disturb nobody."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.running import soon
from workers.loadbalancer.envoy import hostfolders
from workers.loadbalancer.launcher import launcher
from workers.loadbalancer.launcher.launcher import SOCKET, Launcher


@pytest.fixture
async def socket(tmp_path: Path) -> AsyncIterator[Path]:
    """The socket of a launcher without Envoys."""
    async with Launcher(tmp_path, program=Path("/bin/false")).serving():
        yield tmp_path / SOCKET


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        pytest.param("GET /envoys", 200, id="list"),
        pytest.param("GET /envoys/edge/1/ended", 200, id="an-envoy-that-does-not-run"),
        pytest.param("POST /envoys/edge/1/end", 200, id="end-what-does-not-run"),
        pytest.param("POST /envoys/edge/1/start", 409, id="start-without-files"),
        pytest.param("GET /envoys/edge/1/start", 404, id="another-method"),
        pytest.param("POST /envoys/../1/start", 404, id="another-folder"),
        pytest.param("POST /envoys/%2e%2e/1/start", 404, id="another-folder-encoded"),
        pytest.param(f"POST /envoys/edge/{'9' * 5000}/start", 0, id="a-number-without-end"),
        pytest.param(f"POST /envoys/edge/{'9' * 10}/start", 404, id="a-large-number"),
        pytest.param("DELETE /envoys", 400, id="an-unknown-method"),
        pytest.param("\x16\x03\x01", 400, id="no-http"),
    ],
)
async def test_requests_are_answered(socket: Path, request_line: str, status: int) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(f"{request_line} HTTP/1.1\r\nHost: envoy\r\n\r\n".encode())
    answered = b""
    with contextlib.suppress(ConnectionError):
        answered = await soon(reader.read())
    writer.close()
    assert answered.startswith(f"HTTP/1.1 {status} ".encode()) if status else answered == b""


async def test_slow_and_superfluous_clients_are_refused(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def closed(reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            assert await soon(reader.read()) == b""

    monkeypatch.setattr(launcher, "_MOST", 2)
    connections = [await asyncio.open_unix_connection(socket) for _ in range(3)]
    await closed(connections[2][0])
    for _, writer in connections:
        writer.close()
    monkeypatch.setattr(launcher, "_PATIENCE", 0.1)
    slow, writer = await asyncio.open_unix_connection(socket)
    writer.write(b"GET /envoys HTTP/1.1\r\n")
    await closed(slow)
    writer.close()
    assert await hostfolders.ask(socket, "/envoys") == b"[]"


async def test_the_process_loads_no_openssl_and_ends_when_asked(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "windowbox", "launch", "--folder", str(tmp_path), "--envoy", "/bin/false"]
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr
        await soon(process.stderr.readline())
        assert await hostfolders.ask(tmp_path / SOCKET, "/envoys") == b"[]"
        assert not has_openssl(process.pid)
        process.send_signal(signal.SIGTERM)
        assert await soon(process.wait()) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def has_openssl(pid: int) -> bool:
    maps = Path(f"/proc/{pid}/maps")
    return maps.exists() and "libssl" in maps.read_text()
