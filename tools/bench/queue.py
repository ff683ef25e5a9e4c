"""The bus alone: items through queue and worker runtime, with a reconciler that does nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from bus import streams
from bus.messages import Reason, Wish
from bus.transport.connection import Bus, connected
from bus.workqueue.queue import Queue
from sandbox import processes, state
from sandbox.programs import binaries
from sandbox.servers import busserver
from tools.bench.emptypool import POOL
from tools.bench.figures import QueueFigures
from windowbox.settings.bussettings import Access

_ROOT = Path(__file__).parents[2]
_AT_ONCE = 64


async def run(items: int, workers: int, say: Callable[[str], None]) -> QueueFigures:
    """Fill a queue with `items`, then let this many processes empty it."""
    async with server() as url, connected(Access(url)) as bus:
        await streams.ensure(bus)
        say(f"{items} wishes")
        wished = await _fill(bus, items)
        say(f"{workers} worker process{'es' if workers > 1 else ''}")
        running = [await _worker(url) for _ in range(workers)]
        for worker in running:
            await _begin(worker)
        emptied = await _emptied(bus)
        reports = [await _ended(worker) for worker in running]
    first = min(report["first"] for report in reports if report["handled"])
    return QueueFigures(
        items=items,
        workers=workers,
        wishes_per_second=round(items / wished),
        items_per_second=round(items / (emptied - first)),
        worker_cpu_ms=round(1000 * sum(report["cpu"] for report in reports) / items, 3),
        shares=[round(report["handled"] / items, 3) for report in reports],
    )


async def _fill(bus: Bus, items: int) -> float:
    """Make a wish for each of `items` objects. Returns the seconds that it took."""
    queue, keys, started = Queue(bus, POOL), iter(range(items)), time.monotonic()

    async def wisher() -> None:
        for number in keys:
            await queue.wish(f"runtime.things.bench.{number}", Wish(reason=Reason.EVENT))

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(wisher())
    return time.monotonic() - started


async def _emptied(bus: Bus) -> float:
    # Polled at long intervals, so that polling costs little beside the work.
    while (await bus.api(f"STREAM.INFO.{streams.WORK}"))["state"]["messages"]:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return time.monotonic()


async def _worker(url: str) -> Process:
    """A worker process that is ready to start."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tools.bench.emptypool", url,
        cwd=_ROOT, stdin=PIPE, stdout=PIPE, preexec_fn=processes.dying_with_parent(),
    )  # fmt: skip
    assert worker.stdout
    await worker.stdout.readline()
    return worker


async def _begin(worker: Process) -> None:
    assert worker.stdin
    worker.stdin.write(b"go\n")
    await worker.stdin.drain()


async def _ended(worker: Process) -> dict[str, Any]:
    worker.terminate()
    output, _ = await worker.communicate()
    report: dict[str, Any] = json.loads(output)
    return report


@contextlib.asynccontextmanager
async def server() -> AsyncIterator[str]:
    """A NATS server for this measurement."""
    folder = state.folder(f"bench-bus-{os.getpid()}")
    folder.mkdir(parents=True)
    port, monitor = processes.free_port(), processes.free_port()
    child = busserver.nats_server(
        binaries.find("nats-server"), folder, busserver.Listening(port, monitor), {}, "2m"
    )
    server = processes.start(child.argv, folder / "nats-server.log")
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)
