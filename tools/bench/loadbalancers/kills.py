"""From the kill of Envoy to the next served client, on the machine as it is, and among busy loops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tools.bench.loadbalancers import nodesetup
from tools.bench.loadbalancers.lives import NODE_COUNT, opened
from tools.bench.loadbalancers.traffic import PATIENCE, reached
from tools.bench.report import Measured, Report, measured_parts, repeated, say

_OTHERS = 23
_LOOPS = 8
_AIM = 500
_LIFE = 5.2
"""Seconds. An Envoy that ends sooner is restarted with a delay."""


async def measure(times: int) -> Report:
    """Kill Envoy `times` times, before simulated nodes; then the same among busy loops."""
    async with opened(nodesetup.options(NODE_COUNT, simulated=True)) as bench:
        await bench.ground.prepare()
        # Envoy reads the listeners of all Services when it starts.
        for number in range(_OTHERS):
            await bench.created(f"other-{number}")
        _, _, address = await bench.created("victim")

        async def kill() -> float:
            await asyncio.sleep(_LIFE)  # or the restart is delayed
            [envoy] = await bench.envoys()
            begun = time.perf_counter()
            os.kill(envoy.pid, signal.SIGKILL)
            async with asyncio.timeout(PATIENCE):
                await envoy.ended()
            return (await reached(address, 80))[0] - begun

        with _preferred():
            say(f"killing Envoy, {times} times")
            took, failed = await repeated(times, kill)
            found = [Measured.of("Envoy killed", took, _AIM, failed)]
            say(f"the same among {_LOOPS} busy loops")
            with contextlib.ExitStack() as stack:
                argv = [sys.executable, "-c", "while True: pass"]
                for _ in range(_LOOPS):
                    # A session of its own, as other programs have: the kernel shares CPUs between sessions.
                    loop = subprocess.Popen(argv, start_new_session=True)  # noqa: ASYNC220
                    stack.callback(loop.wait)
                    stack.callback(loop.kill)
                took, failed = await repeated(times, kill)
                found.append(Measured.of(f"Envoy killed, {_LOOPS} busy loops", took, _AIM, failed))
    return Report(found, measured_parts("From Envoy's end to a client served", found))


@contextlib.contextmanager
def _preferred() -> Iterator[None]:
    """Prefer this process, so that the client does not wait for a CPU itself. Without effect unless root."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    session = Path("/proc/self/autogroup")
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        session.write_text("-20")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
            session.write_text("0")
