"""The runner: a sandbox with load generators, which measures operations on objects, restarts and idleness."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from bus import streams
from bus.leases import presence
from bus.transport.connection import Bus, connected
from sandbox import state
from sandbox.options import Options
from sandbox.supervisor import Supervisor
from tools.bench import audit, client
from tools.bench.audit import AuditLog
from tools.bench.client import Client, Observer, each
from tools.bench.client import name as record_name
from tools.bench.report import Phase, Restart, Spread, is_ours, say
from tools.bench.usage import Meter, Reading, Usage, running_first, usage
from windowbox.settings.bussettings import Access

_PATIENCE = 120.0


@dataclass
class World:
    """A running sandbox, with load generators and measurements."""

    sandbox: Supervisor
    client: Client
    observer: Observer
    """Of DNSRecords."""
    bus: Bus
    audit: AuditLog
    first: bool = False
    """Measured processes run before other processes of the machine."""
    beside: dict[str, int] = field(default_factory=dict)
    """Another program that is measured in place of windowbox: its name, and its PID."""

    def pids(self) -> dict[str, int]:
        """The processes of the sandbox, by name, without those of Pods and edges."""
        children = {name: child.pid for name, child in self.sandbox.state.children.items() if child.pid}
        return children | self.beside

    def usage(self) -> dict[str, Usage]:
        """The usage of each process by name; that of the benchmark as `bench`."""
        return {name: usage(pid) for name, pid in {**self.pids(), "bench": os.getpid()}.items()}

    async def dns_updates(self) -> int:
        """DNS update messages that the running workers have sent."""
        found = await presence.processes(self.bus)
        return sum(int(zone["messages"]) for process in found for zone in process.get("zones", ()))

    async def measured(
        self,
        name: str,
        numbers: Iterable[int],
        act: Callable[[int], Awaitable[None]],
        *,
        gone: bool = False,
        one_by_one: bool = False,
        named: Callable[[int], str] = record_name,
        observer: Observer | None = None,
    ) -> Phase:
        """Call `act` for each number, and measure until the observer has seen all objects done, or `gone`."""
        observer = observer or self.observer
        observer.expect(gone=gone)
        self.audit.requests()
        updates, begun = await self.dns_updates(), dict[str, float]()
        # Counters are read last, so that the measurement pays for nothing but the operation.
        meter, started = Meter(self.usage()), time.perf_counter()
        first = (
            running_first([os.getpid(), *self.pids().values()]) if self.first else contextlib.nullcontext()
        )
        with first:
            for some in [[n] for n in numbers] if one_by_one else [numbers]:
                begun |= {named(n): at for n, at in (await each(some, act)).items()}
                ended = await observer.all_of(begun)
        seconds, count = max(ended[n] for n in begun) - started, len(begun)
        # The audit log and the journal are written after the last watch event.
        await self.quiet(calm=0.3)
        used, requests = meter.read(self.usage()), self.audit.requests()
        return Phase(
            name=name,
            count=count,
            seconds=round(seconds, 3),
            latency=Spread.of([ended[n] - begun[n] for n in begun]),
            cpu_ms={process: round(1000 * cpu / count, 3) for process, cpu in used.cpu.items()},
            requests={what: round(n / count, 3) for what, n in sorted(requests.items())},
            writes=round(audit.writes(requests) / count, 3),
            dns_updates=round((await self.dns_updates() - updates) / count, 3),
            elsewhere_percent=used.elsewhere_percent,
        )

    async def restarted(self, objects: int) -> Restart:
        """Restart all processes of windowbox, and measure their work on `objects` unchanged objects."""
        say("restart")
        async with asyncio.timeout(_PATIENCE):
            # On a loaded machine, processes may be idle for lack of CPU: the queue has to be empty, too.
            for stream in (streams.TRIGGERS, streams.WORK):
                while (await self.bus.api(f"STREAM.INFO.{stream}"))["state"]["messages"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)  # a stream sends no event when it is empty
        await self.quiet()
        # All at once, as in a reboot: a process that stays would do the work of those that restart.
        names = [name for name in self.sandbox.names if is_ours(name)]
        await asyncio.gather(*(self.sandbox.stop(name) for name in names))
        self.audit.requests()
        started = time.perf_counter()
        await asyncio.gather(*(self.sandbox.start(name) for name in names))
        ready = time.perf_counter()
        quiet, requests = await self.quiet(), self.audit.requests()
        return Restart(
            objects=objects,
            ready=round(ready - started, 2),
            quiet=round(quiet - started, 2),
            requests=dict(sorted(requests.items())),
            writes=audit.writes(requests),
            dns_updates=await self.dns_updates(),
        )

    async def idle(self, seconds: float) -> Reading:
        """The CPU of each process while nothing happens."""
        say(f"idle for {seconds:.0f} s")
        meter = Meter(self.usage())
        await asyncio.sleep(seconds)
        return meter.read(self.usage())

    async def quiet(self, patience: float = _PATIENCE, calm: float = 1.0) -> float:
        """Wait until the measured processes are idle for `calm` seconds. Returns the start of that time."""
        busy, since = self.usage(), time.perf_counter()
        limit = since + patience
        while (now := time.perf_counter()) - since < calm and now < limit:
            await asyncio.sleep(0.1)
            used = self.usage()
            # One clock tick (10 ms), the least that the kernel counts, is idleness.
            if any(
                (is_ours(name) or name in self.beside) and one.cpu - busy[name].cpu > 0.015
                for name, one in used.items()
                if name in busy
            ):
                since = time.perf_counter()
            busy = used
        return since


@contextlib.asynccontextmanager
async def world(name: str, options: Options, *, first: bool = False) -> AsyncIterator[World]:
    """A new sandbox, ready, with its audit log on; removed at the end."""
    nodes = (
        f" with {options.nodes or options.simulated_nodes} nodes"
        if options.nodes or options.simulated_nodes
        else ""
    )
    say(f"starting a sandbox{nodes}")
    # The pid keeps benchmarks that run at the same time apart.
    folder = state.folder(f"bench-{name}-{os.getpid()}")
    options = options.model_copy(update={"audit": True})
    try:
        async with (
            Supervisor.running(folder, options, patience=_PATIENCE) as sandbox,
            contextlib.AsyncExitStack() as stack,
        ):
            opened = await stack.enter_async_context(client.opened(sandbox.api))
            await opened.prepare()
            observer = await stack.enter_async_context(Observer.watching(opened))
            variables = sandbox.environment()
            user, password = variables["NATS_USER"], variables["NATS_PASSWORD"]
            access = Access(variables["NATS_URL"], user, password, "windowbox bench")
            bus = await stack.enter_async_context(connected(access))
            yield World(sandbox, opened, observer, bus, AuditLog(folder.absolute() / "audit.log"), first)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
