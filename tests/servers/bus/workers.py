"""Worker processes, and the story that they tell together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

from sandbox import processes
from sandbox.nodes import network
from tests.servers.bus.handlers import Said, Story
from windowbox.settings.bussettings import Access


class Workers:
    """As many worker processes as a test starts; none outlives it."""

    def __init__(self, access: Access, ack_wait: float) -> None:
        self.story = Story()
        self._access = access
        self._ack_wait = ack_wait
        self._started: list[Process] = []
        self._readers: list[asyncio.Task[None]] = []

    async def start(self, namespace: str = "") -> Process:
        """One more, in a network namespace if one is named."""
        entering = ["nsenter", f"--net={network.namespace_path(namespace)}"] if namespace else []
        process = await asyncio.create_subprocess_exec(
            *entering, sys.executable, "-m", "tests.servers.bus.worker",
            self._access.url, str(self._ack_wait), *([str(self._access.ca)] if self._access.ca else []),
            stdin=PIPE, stdout=PIPE, preexec_fn=processes.dying_with_parent(),
        )  # fmt: skip
        self._started.append(process)
        self._readers.append(asyncio.create_task(self._read(process)))
        return process

    @staticmethod
    async def kill(process: Process) -> None:
        process.kill()
        await process.wait()

    @staticmethod
    def open_gate(process: Process) -> None:
        assert process.stdin
        process.stdin.write(b"\n")

    async def _read(self, process: Process) -> None:
        assert process.stdout
        async for line in process.stdout:
            self.story.add(Said(**json.loads(line)))

    async def end(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            await process.wait()
        await asyncio.gather(*self._readers)


@contextlib.asynccontextmanager
async def workers(bus: str | Access, *, ack_wait: float = 1.5) -> AsyncIterator[Workers]:
    crew = Workers(Access(bus) if isinstance(bus, str) else bus, ack_wait)
    try:
        yield crew
    finally:
        await crew.end()
