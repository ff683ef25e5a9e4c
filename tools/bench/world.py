"""A sandbox with measurements: usage of processes, requests to the API server, DNS updates."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bus import streams
from bus.leases import presence
from bus.transport.connection import Bus, connected
from sandbox import state
from sandbox.options import Options
from sandbox.supervisor import Supervisor
from tools.bench import audit, client, precedence
from tools.bench.audit import AuditLog
from tools.bench.client import Client, Observer
from tools.bench.figures import Phase, Spread, is_ours
from tools.bench.usage import Usage, machine, usage
from windowbox.settings.bussettings import Access

_PATIENCE = 120.0


@dataclass
class World:
    """A running sandbox, with load generators and measurements."""

    sandbox: Supervisor
    client: Client
    observer: Observer
    bus: Bus
    audit: AuditLog
    first: bool = False
    """What is measured runs before other processes of the machine."""

    def usage(self) -> dict[str, Usage]:
        """The usage of each process by name; that of the benchmark as `bench`."""
        children = self.sandbox.state.children.items()
        found = {name: usage(child.pid) for name, child in children if child.pid}
        return found | {"bench": usage(os.getpid())}

    def _pids(self) -> list[int]:
        return [os.getpid(), *(child.pid for child in self.sandbox.state.children.values() if child.pid)]

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
        named: Callable[[int], str] | None = None,
        observer: Observer | None = None,
    ) -> Phase:
        """Run an operation on each of these objects, and measure until all are done."""
        observer = observer or self.observer
        observer.expect(gone=gone)
        self.audit.requests()
        updates = await self.dns_updates()
        before, before_all, started = self.usage(), machine(), time.perf_counter()
        begun = dict[str, float]()
        with precedence.given(self._pids()) if self.first else contextlib.nullcontext():
            for some in [[n] for n in numbers] if one_by_one else [numbers]:
                begun |= await self.client.each(some, act, named)
                ended = await observer.all_of(begun)
        seconds, count = max(ended[n] for n in begun) - started, len(begun)
        # The audit log and the journal are written after the last watch event.
        await self.quiet(calm=0.3)
        used = self.usage()
        own = sum(used[process].cpu - before[process].cpu for process in used)
        elsewhere = (machine() - before_all - own) / (time.perf_counter() - started)
        requests = self.audit.requests()
        return Phase(
            name=name,
            count=count,
            seconds=round(seconds, 3),
            latency=Spread.of([ended[n] - begun[n] for n in begun]),
            cpu_ms={p: round(1000 * (used[p].cpu - before[p].cpu) / count, 3) for p in used},
            requests={what: round(c / count, 3) for what, c in sorted(requests.items())},
            writes=round(audit.writes(requests) / count, 3),
            dns_updates=round((await self.dns_updates() - updates) / count, 3),
            elsewhere_percent=round(100 * elsewhere / (os.cpu_count() or 1), 1),
        )

    async def quiet(self, patience: float = 120, calm: float = 1.0) -> float:
        """Wait until our processes are idle for a while. Returns the start of that time."""
        busy, since = self._busy(), time.perf_counter()
        limit = since + patience
        while (now := time.perf_counter()) - since < calm and now < limit:
            await asyncio.sleep(0.1)
            # A clock tick is the least that the kernel counts; one of them now and then is idleness.
            used = self._busy()
            if any(cpu - busy.get(name, 0.0) > 0.015 for name, cpu in used.items()):
                since = time.perf_counter()
            busy = used
        return since

    async def drained(self) -> None:
        """Wait until no wish is queued: on a loaded machine, idle processes may only lack CPU."""
        async with asyncio.timeout(120):
            for stream in (streams.TRIGGERS, streams.WORK):
                while (await self.bus.api(f"STREAM.INFO.{stream}"))["state"]["messages"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)  # a stream sends no event when it is empty

    def _busy(self) -> Mapping[str, float]:
        return {name: used.cpu for name, used in self.usage().items() if is_ours(name)}


@contextlib.asynccontextmanager
async def world(name: str, options: Options, *, first: bool = False) -> AsyncIterator[World]:
    """A new sandbox, ready, with its audit log on; removed at the end."""
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
            bus = await stack.enter_async_context(connected(_access(sandbox)))
            yield World(sandbox, opened, observer, bus, AuditLog(_audit(folder)), first)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _access(sandbox: Supervisor) -> Access:
    environment = sandbox.environment()
    return Access(
        environment["NATS_URL"], environment["NATS_USER"], environment["NATS_PASSWORD"], "windowbox bench"
    )


def _audit(folder: Path) -> Path:
    return folder.absolute() / "audit.log"
