"""A client that opens connections all the time, keeps some open, and counts failures."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

_PATIENCE = 5.0
_PAUSE = 0.1
"""Seconds between two messages over a long connection."""


@dataclass
class Steady:
    """What the client has seen so far."""

    address: str
    port: int
    failed: list[str] = field(default_factory=list)
    """Connections that could not be made, or were cut before they were greeted."""
    broken: list[str] = field(default_factory=list)
    """Long connections that were cut."""
    served: list[tuple[float, str]] = field(default_factory=list)
    """The time, and the Pod that answered."""
    lasting: dict[int, str] = field(default_factory=dict)
    """The Pod of each long connection."""
    begun: threading.Event = field(default_factory=threading.Event)
    """All long connections are open."""
    more: threading.Condition = field(default_factory=threading.Condition)
    """Another one was served."""

    def enough(self, more: int = 100) -> None:
        """Wait for this many more served connections."""
        with self.more:
            wanted = len(self.served) + more
            enough = self.more.wait_for(lambda: len(self.served) >= wanted, 60)
        assert enough, f"only {len(self.served)} of {wanted}; {self.failed[:5]}"

    def serve(self, pod: str) -> None:
        """A Pod has answered."""
        with self.more:
            self.served.append((time.monotonic(), pod))
            self.more.notify_all()

    def pods(self, last: int) -> set[str]:
        """Those that served the last connections."""
        return {pod for _, pod in self.served[-last:]}

    def unharmed(self) -> None:
        """Check that no connection failed."""
        assert (self.failed, self.broken) == ([], [])
        assert self.served


@contextlib.contextmanager
def steady(address: str, port: int = 80, *, rate: int = 100, lasting: int = 20) -> Iterator[Steady]:
    """A client in a thread of its own, for as long as the body runs, with all its long connections open."""
    seen, ending = Steady(address, port), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_live(seen, rate, lasting, ending)), name="client")
    thread.start()
    try:
        assert seen.begun.wait(30), seen.failed
        yield seen
    finally:
        ending.set()
        thread.join(30)


async def _live(seen: Steady, rate: int, lasting: int, ending: threading.Event) -> None:
    tasks: set[asyncio.Task[None]] = set()
    opened = asyncio.Semaphore(0)
    long = [asyncio.create_task(_long(seen, number, opened)) for number in range(lasting)]
    for _ in range(lasting):
        await opened.acquire()
    seen.begun.set()
    begun, count = time.monotonic(), 0
    while not ending.is_set():
        while count < (time.monotonic() - begun) * rate:
            count += 1
            task = asyncio.create_task(_short(seen))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(0.01)  # the pace of the clients
    for task in long:
        task.cancel()
    await asyncio.gather(*long, *tasks, return_exceptions=True)


async def _short(seen: Steady) -> None:
    begun = time.monotonic()
    try:
        async with asyncio.timeout(_PATIENCE):
            _, writer, pod = await _greeted(seen)
            seen.serve(pod)
            writer.close()
            await writer.wait_closed()
    except (OSError, TimeoutError) as error:
        seen.failed.append(f"{error!r} after {time.monotonic() - begun:.3f} s")


async def _long(seen: Steady, number: int, opened: asyncio.Semaphore) -> None:
    writer = None
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer, seen.lasting[number] = await _greeted(seen)
        opened.release()
        while True:
            writer.write(b"go on\n")
            async with asyncio.timeout(_PATIENCE):
                if await reader.readline() != b"go on\n":
                    raise ConnectionResetError("closed")
            await asyncio.sleep(_PAUSE)  # the pace of a client
    except (OSError, TimeoutError) as error:
        seen.broken.append(f"{number} to {seen.lasting.get(number)}: {error!r}")
        opened.release()
    finally:
        if writer:
            writer.close()


async def _greeted(seen: Steady) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    reader, writer = await asyncio.open_connection(seen.address, seen.port)
    line = await reader.readline()
    if not line.startswith(b"pod="):
        writer.close()
        raise ConnectionResetError(f"greeted with {line!r}")
    return reader, writer, line.split()[0].removeprefix(b"pod=").decode()
