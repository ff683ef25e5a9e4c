"""The bus alone: items through queue and worker runtime, with a reconciler that does nothing.

Run as a program, it is a worker process with that reconciler: it prints `ready`, waits for a line, works
until SIGTERM, and prints its report.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

import windowbox
from bus import streams
from bus.messages import Reason, Wish
from bus.outcomes import Done, Outcome
from bus.transport.connection import connected
from bus.workqueue.pool import Item, Pool
from bus.workqueue.queue import Queue
from sandbox import processes, state
from sandbox.programs import binaries
from sandbox.servers import busserver
from tools.bench.client import each
from tools.bench.report import MachineFacts, Report, percents, say, table
from tools.bench.usage import usage
from windowbox.settings.bussettings import Access

CHECKOUT = Path(windowbox.__file__).parents[1]
_POOL = "bench"
_AT_ONCE = 64


@dataclass(frozen=True)
class QueueFigures(MachineFacts):
    """The result of `bench bus`."""

    items: int
    workers: int
    wishes_per_second: int
    """How fast one process enqueues."""
    items_per_second: int
    """How fast all worker processes together took and settled the items."""
    worker_cpu_ms: float
    """CPU of the worker processes, in milliseconds for each item."""
    shares: Sequence[float]
    """The share of each worker process in the items."""


async def measure(items: int, workers: int) -> Report:
    """Fill a queue with `items`, then let `workers` processes empty it."""
    async with bus_server() as url, connected(Access(url)) as bus:
        await streams.ensure(bus)
        say(f"{items} wishes")
        queue, started = Queue(bus, _POOL), time.monotonic()
        wish = Wish(reason=Reason.EVENT)

        async def enqueue(number: int) -> None:
            await queue.wish(f"runtime.things.bench.{number}", wish)

        await each(range(items), enqueue, _AT_ONCE)
        wished = time.monotonic() - started
        say(f"{workers} worker process{'es' if workers > 1 else ''}")
        running = list[Process]()
        for _ in range(workers):
            worker = await asyncio.create_subprocess_exec(
                *processes.dying_with_parent([sys.executable, "-m", __name__, url]),
                cwd=CHECKOUT,
                stdin=PIPE,
                stdout=PIPE,
            )
            assert worker.stdout
            await worker.stdout.readline()  # it is connected
            running.append(worker)
        # Imports and connections take longer than the work: no worker begins before the last one can.
        for worker in running:
            assert worker.stdin
            worker.stdin.write(b"go\n")
            await worker.stdin.drain()
        # Polled at long intervals, so that polling costs little beside the work.
        while (await bus.api(f"STREAM.INFO.{streams.WORK}"))["state"]["messages"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        emptied, reports = time.monotonic(), list[dict[str, Any]]()
        for worker in running:
            worker.terminate()
            reports.append(json.loads((await worker.communicate())[0]))
    return _report(items, workers, wished, emptied, reports)


def _report(
    items: int, workers: int, wished: float, emptied: float, reports: Sequence[dict[str, Any]]
) -> Report:
    first = min(report["first"] for report in reports if report["handled"])
    found = QueueFigures(
        items=items,
        workers=workers,
        wishes_per_second=round(items / wished),
        items_per_second=round(items / (emptied - first)),
        worker_cpu_ms=round(1000 * sum(report["cpu"] for report in reports) / items, 3),
        shares=[round(report["handled"] / items, 3) for report in reports],
    )
    shown = table(
        "The bus alone",
        [found],
        {
            "items": lambda one: str(one.items),
            "workers": lambda one: str(one.workers),
            "wishes/s": lambda one: str(one.wishes_per_second),
            "items/s": lambda one: str(one.items_per_second),
            "CPU ms/item": lambda one: f"{one.worker_cpu_ms:.3f}",
            "share of each worker": lambda one: percents(one.shares),
        },
    )
    return Report(found, [shown])


@contextlib.asynccontextmanager
async def bus_server() -> AsyncIterator[str]:
    """A NATS server without a sandbox: its URL."""
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


class EmptyReconciler:
    """A reconciler that only counts items, and measures CPU from the first one on."""

    def __init__(self) -> None:
        self.handled = 0
        self.first = 0.0
        self.cpu_before = 0.0

    async def handle(self, item: Item) -> Outcome:
        if not self.handled:
            self.first, self.cpu_before = time.monotonic(), usage(os.getpid()).cpu
        self.handled += 1
        return Done()

    async def quarantine(self, item: Item) -> None:
        raise NotImplementedError


async def _work(url: str) -> None:
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    reconciler = EmptyReconciler()
    with contextlib.suppress(asyncio.CancelledError):
        async with connected(Access(url)) as bus:
            print("ready", flush=True)
            # All processes start together, on a signal.
            await asyncio.to_thread(sys.stdin.readline)
            await Pool(bus, _POOL, reconciler).run()
    cpu = usage(os.getpid()).cpu - reconciler.cpu_before if reconciler.handled else 0.0
    print(json.dumps({"handled": reconciler.handled, "first": reconciler.first, "cpu": cpu}))


if __name__ == "__main__":
    uvloop.run(_work(sys.argv[1]))
