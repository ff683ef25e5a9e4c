"""From the end of a killed Envoy to the next client served, on a machine as it is and among busy loops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.bench import loadbalancers_nodes
from tools.bench.loadbalancers import Balancers, attempts, noted, opened, summed
from tools.bench.loadbalancers_clients import reached
from tools.bench.loadbalancers_figures import Measured
from workers.loadbalancer.envoy.process import Process

Say = Callable[[str], None]

_NODES = 4
_OTHERS = 23
_LOOPS = 8
_AIM = 500
_PATIENCE = 30.0
_LIFE = 5.2
"""Seconds. An Envoy that ends sooner is not started again at once."""


async def run(times: int, say: Say) -> list[Measured]:
    """Kill Envoy again and again, before simulated nodes."""
    say("starting a sandbox with simulated nodes")
    async with opened(loadbalancers_nodes.options(_NODES, simulated=True)) as bench:
        await bench.ground.prepare()
        for number in range(_OTHERS):
            await bench.created(f"other-{number}")
        _, address = await bench.created("victim")
        with _preferred():
            say(f"killing Envoy, {times} times")
            quiet = await _killed(bench, "Envoy killed", times, address)
            say(f"the same among {_LOOPS} busy loops")
            with _busy_loops():
                loaded = await _killed(bench, f"Envoy killed, {_LOOPS} busy loops", times, address)
        return [quiet, loaded]


async def _killed(bench: Balancers, what: str, times: int, address: str) -> Measured:
    took: list[float] = []
    failed: list[str] = []
    for _ in attempts(times, failed):
        with noted(failed):
            await asyncio.sleep(_LIFE)
            [envoy] = await bench.envoys()
            assert isinstance(envoy, Process)
            begun = time.perf_counter()
            os.kill(envoy.pid, signal.SIGKILL)
            async with asyncio.timeout(_PATIENCE):
                await envoy.ended()
            took.append((await reached(address, 80))[0] - begun)
    return summed(what, took, _AIM, failed)


@contextlib.contextmanager
def _busy_loops() -> Iterator[None]:
    """Processes that would use all CPUs, each in a session of its own, as other programs are."""
    argv = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(argv, start_new_session=True) for _ in range(_LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextlib.contextmanager
def _preferred() -> Iterator[None]:
    """The client's own waiting for a CPU is no part of the figure. Root only; others measure it, too."""
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
