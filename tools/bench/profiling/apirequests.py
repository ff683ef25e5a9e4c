"""The cost of a request to an API server: over kept connections, and through aiohttp as for tenants' servers.

`python -m tools.bench.profiling.apirequests` starts a process that answers every request alike, without TLS,
and prints the CPU time of a patch at this side: 32 at once, medians of alternating rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import ssl
import statistics
import subprocess
import sys
import time

from windowbox.clients.kubernetes import credentials
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.refs import DNSRECORDS

_REQUESTS, _AT_ONCE, _ROUNDS = 3200, 32, 7
_BODY = b'{"metadata": {"name": "x", "uid": "u", "resourceVersion": "1"}, "filler": "%b"}' % (b"x" * 2000)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Sat, 28 Nov 2026 16:00:00 GMT\r\n"
_ANSWER = b"%bContent-Length: %d\r\n\r\n%b" % (_HEAD, len(_BODY), _BODY)
_PATCH = {"status": {"lastOperation": {"state": "Succeeded", "description": "d" * 60}}}


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length:")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length or 0))
            writer.write(_ANSWER)


async def _serve(listening: socket.socket) -> None:
    async with await asyncio.start_server(_answer, sock=listening) as server:
        await server.serve_forever()


async def _measured(client: Kube) -> float:
    """Microseconds of CPU for each request."""

    async def several() -> None:
        for _ in range(_REQUESTS // _AT_ONCE):
            await client.merge(DNSRECORDS, "bench", "record-00001", _PATCH, part="status")

    cpu = time.process_time()
    await asyncio.gather(*(several() for _ in range(_AT_ONCE)))
    return 1e6 * (time.process_time() - cpu) / _REQUESTS


async def _compare(url: str) -> None:
    configuration = credentials.empty()
    configuration.host = url
    async with credentials.opened(url, None, ssl.create_default_context(), None) as session:
        clients = {
            "aiohttp": Kube(configuration, dataclasses.replace(session, plain=None)),
            "kept connections": Kube(configuration, session),
        }
        found: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(_ROUNDS):
            for name, client in clients.items():
                found[name].append(await _measured(client))
    for name, figures in found.items():
        print(f"{name:16}: {statistics.median(figures):6.1f} µs of CPU")


def main() -> None:
    import uvloop

    if len(sys.argv) > 1:
        uvloop.run(_serve(socket.socket(fileno=int(sys.argv[1]))))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = listening.fileno()
        command = [sys.executable, "-m", "tools.bench.profiling.apirequests", str(number)]
        with subprocess.Popen(command, pass_fds=[number]) as server:
            try:
                uvloop.run(_compare(f"http://127.0.0.1:{listening.getsockname()[1]}"))
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
