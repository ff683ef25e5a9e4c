"""Restart one child process whenever it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from sandbox import processes
from sandbox.children import Child
from sandbox.state import ChildState, Condition
from windowbox.errors import WindowboxError

logger = logging.getLogger(__name__)

_FIRST_DELAY = 0.2
_LONGEST_DELAY = 10.0
_HEALTHY_AFTER = 30.0
"""A process that ran this long resets its backoff."""
_PATIENCE = 15.0
_LOOK_AGAIN = 0.05


class Restarter:
    """Restarts a child whenever it ends, until `stop`."""

    def __init__(self, child: Child, log: Path, changed: Callable[[], None]) -> None:
        self.child = child
        needs = [str(path) for path in child.needs]
        self.state = ChildState(port=child.port, host=child.host, log=str(log), needs=needs)
        self._log = log
        self._changed = changed
        self._wanted = asyncio.Event()
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._process: asyncio.subprocess.Process | None = None
        self._delay = _FIRST_DELAY

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            # Polled: no event says that the containerd of a node answers, or that a node has power again.
            if await self._is_held():
                await asyncio.sleep(_LOOK_AGAIN)
                continue
            began = time.monotonic()
            try:
                await self._run_once()
            except (OSError, WindowboxError) as error:  # the program cannot be started
                self.state.last_exit = str(error)
            if not self._wanted.is_set():
                self._note("stopped")
                continue
            if await self._is_held():
                self._note("waiting")
                continue
            if time.monotonic() - began > _HEALTHY_AFTER:
                self._delay = _FIRST_DELAY
            self.state.restarts += 1
            self._note("crashed")
            logger.warning(
                "%s ended with %s; again in %.1f s", self.child.name, self.state.last_exit, self._delay
            )
            await asyncio.sleep(self._delay)
            self._delay = min(2 * self._delay, _LONGEST_DELAY)

    def start(self) -> None:
        self._wanted.set()

    async def ready(self) -> None:
        """Wait until the child is ready."""
        await self._ready.wait()

    async def stop(self) -> None:
        """End the child by SIGTERM, and do not restart it."""
        self._wanted.clear()
        if process := self._process:
            await _end(process, self.signal, self.child.stop_signal)
        await self._ended.wait()
        self._note("stopped")

    async def crash(self) -> None:
        """End the child by SIGKILL, and do not restart it."""
        self._wanted.clear()
        self._kill()
        await self._ended.wait()
        self._note("stopped")

    async def kill(self) -> None:
        """End the child by SIGKILL. It is restarted."""
        if self._process:
            self._delay = _FIRST_DELAY  # not a crash: no restart delay
            self._kill()
            await self._ended.wait()

    def signal(self, number: signal.Signals) -> None:
        if process := self._process:
            inner = processes.only_child(process.pid) if self.child.inner else None
            if number == signal.SIGCONT or not inner:
                # The parent of an inner program stops when the program stops, and needs its own SIGCONT.
                _send(process, number, process.pid)
            if inner:
                _send(process, number, inner)

    def _kill(self) -> None:
        if self._process:
            _send(self._process, signal.SIGKILL, self._process.pid)

    async def _is_held(self) -> bool:
        if self.state.lacks_program():
            return True
        return self.child.held is not None and await asyncio.to_thread(self.child.held)

    async def _run_once(self) -> None:
        if self.child.before:
            self.child.before()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *processes.dying_with_parent(self.child.argv),
                env={**processes.environment(), **self.child.env},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._process = process
        self._ended.clear()
        self.state.pid = process.pid
        self.state.started = processes.identify(process.pid).started
        self.state.since = time.time()
        self._note("starting")
        try:
            async with asyncio.TaskGroup() as group:
                readiness = group.create_task(self._become_ready(), name=f"ready:{self.child.name}")
                await process.wait()
                readiness.cancel()
        finally:
            if process.returncode is None:
                await _end(process, self.signal, self.child.stop_signal)
            self._process = None
            self.state.pid = self.state.started = None
            code = process.returncode
            if code is None:
                self.state.last_exit = "an unknown status"
            else:
                self.state.last_exit = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self._ready.clear()
            self._ended.set()

    async def _become_ready(self) -> None:
        began = time.monotonic()
        # Servers announce no readiness: it has to be polled.
        while True:
            if await asyncio.to_thread(self.child.ready):
                try:
                    if self.child.then:
                        await asyncio.to_thread(self.child.then)
                    break
                except WindowboxError as error:
                    logger.warning("%s is up, but %s", self.child.name, error)
            await asyncio.sleep(_LOOK_AGAIN)
        self.state.took = round(time.monotonic() - began, 2)
        self._ready.set()
        self._note("ready")

    def _note(self, condition: Condition) -> None:
        self.state.condition = condition
        self._changed()


async def _end(
    process: asyncio.subprocess.Process, send: Callable[[signal.Signals], None], number: signal.Signals
) -> None:
    send(number)
    # A stopped process handles SIGTERM only after SIGCONT.
    send(signal.SIGCONT)
    try:
        async with asyncio.timeout(_PATIENCE):
            await process.wait()
    except TimeoutError:
        _send(process, signal.SIGKILL, process.pid)
        await process.wait()


def _send(process: asyncio.subprocess.Process, number: signal.Signals, pid: int) -> None:
    # asyncio's own `send_signal` would reap an ended process first, and `wait` would miss its end.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
