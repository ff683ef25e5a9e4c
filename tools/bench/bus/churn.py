"""Machines that come and go: what they leave on the bus. Their API server and their runs are simulated."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bus import intents, streams, subjects
from bus.messages import Announcement, Reason, StatusIntent, Wish
from bus.outcomes import Done, Ignored, Outcome, RequeueAfter, Unfinished
from bus.transport.connection import Bus, connected
from bus.workqueue.pool import Item, Pool
from bus.workqueue.queue import Queue
from bus.workqueue.routing import Router
from sandbox import files
from tests.support.apiservers import ApiServers, api_servers
from tools.bench.bus.emptyruns import bus_server
from tools.bench.client import background, until
from tools.bench.report import MachineFacts, Report, say, table
from watchers import limits
from watchers.limits import Shared
from watchers.mirror import Mirror
from windowbox.clients.kubernetes import kube
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINES, RUNTIME
from windowbox.settings.bussettings import Access
from workers.machines.machine import machinenodes
from workers.machines.machine.machinepool import MachineMapping
from workers.machines.machine.machineviews import MachineViews

_POOL = "machine"
_NAMESPACE = "shoot--bench--churn"
_PATIENCE = 600.0
_TIMEOUT = 1200.0
"""Seconds until a Machine without a node is looked at again."""
_SHOWN = (streams.OBJECTS, streams.INTENTS, streams.LATER, streams.TRIGGERS, streams.WORK, streams.JOURNAL)


@dataclass(frozen=True)
class Fill:
    """What a stream holds."""

    messages: int
    bytes: int


@dataclass(frozen=True)
class StreamFill:
    """What a stream held before the first Machine, at most, and after the last."""

    name: str
    before: Fill
    peak: Fill
    after: Fill


@dataclass(frozen=True)
class ChurnFigures(MachineFacts):
    """The result of `bench bus --churn`."""

    machines: int
    seconds: float
    streams: Sequence[StreamFill]


async def measure(machines: int, at_once: int = 1000) -> Report:
    """Let so many Machines come and go, at most `at_once` existing at a time."""
    started = time.perf_counter()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(bus_server())
        bus = await stack.enter_async_context(connected(Access(url)))
        apis = await stack.enter_async_context(api_servers(remembered=2 * at_once))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        files.write_private(folder / "kubeconfig", apis.kubeconfig(RUNTIME))
        api = await stack.enter_async_context(kube.from_file(folder / "kubeconfig"))
        await streams.ensure(bus)
        mirror = Mirror(bus, api, RUNTIME, MACHINES, Shared(bus))
        views = MachineViews(bus)
        router = Router(bus, Queue(bus, _POOL), MachineMapping(views))
        pools = [Pool(bus, _POOL, _Runs(bus)), Pool(bus, intents.PATCH, _Written())]
        before = await _fills(bus)
        acts = [mirror.run, router.run, *(pool.run for pool in pools), *views.tasks.values()]
        for number, act in enumerate(acts):
            await stack.enter_async_context(background(act(), f"churn {number}"))
        await mirror.listed.wait()
        peak = await _churn(bus, apis, machines, at_once)
        say("an hour later: tombstones are forgotten")
        limits.TOMBSTONE_SECONDS = 0.0
        await _forgotten(bus, apis)
        after = await _fills(bus)
    found = [StreamFill(name, before[name], peak[name], after[name]) for name in _SHOWN]
    figures = ChurnFigures(machines, round(time.perf_counter() - started, 1), found)

    def cell(fill: Fill) -> str:
        return f"{fill.messages:,} / {fill.bytes / 1e6:.1f}"

    shown = table(
        f"{machines:,} Machines came and went in {figures.seconds:.0f} s; messages / MB of each stream",
        found,
        {
            "stream": lambda one: one.name,
            "before": lambda one: cell(one.before),
            "at the peak": lambda one: cell(one.peak),
            "after": lambda one: cell(one.after),
        },
    )
    return Report(figures, [shown])


class _Runs:
    """Runs of Machines whose nodes have the largest conditions: one report, and a deadline."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        said = {"status": "False", "reason": "Bench", "message": "m" * 1000}
        many = [{"type": f"Problem{number}", **said} for number in range(64)]
        found = machinenodes.conditions(Object({"status": {"conditions": many}}))
        self._status: dict[str, Any] = {"conditions": machinenodes.bounded(found)}

    async def handle(self, item: Item) -> Outcome:
        stored = await self._bus.last(streams.OBJECTS, subjects.seen(subjects.ref(item.key)))
        if stored is None or Announcement(stored).gone:
            return Ignored("gone")
        before = await intents.last(self._bus, item.key)
        intent = StatusIntent(uid=Announcement(stored).uid, patch=self._status)
        if before.intent is None:
            await intents.report(self._bus, item.key, intent, before.sequence)
        return Unfinished("waiting", RequeueAfter(Wish(reason=Reason.DUE), _TIMEOUT))

    async def quarantine(self, item: Item) -> None:
        raise AssertionError(item.key)


class _Written:
    """Patchers that have written the status."""

    async def handle(self, item: Item) -> Outcome:
        return Done("written")

    async def quarantine(self, item: Item) -> None:
        raise AssertionError(item.key)


async def _churn(bus: Bus, apis: ApiServers, machines: int, at_once: int) -> dict[str, Fill]:
    """Create and delete the Machines. Returns the most that each stream held."""
    peak: dict[str, Fill] = dict.fromkeys(_SHOWN, Fill(0, 0))
    for first in range(0, machines, at_once):
        names = [f"machine-{number:06}" for number in range(first, min(first + at_once, machines))]
        for name in names:
            apis.put(RUNTIME, MACHINES, {"metadata": {"namespace": _NAMESPACE, "name": name}, "spec": {}})
        await until(lambda names=names: _settled(bus, len(names)), _PATIENCE, 0.05)  # type: ignore[misc]
        peak = _most(peak, await _fills(bus))
        for name in names:
            apis.delete(RUNTIME, MACHINES, _NAMESPACE, name)
        await until(lambda: _settled(bus, 0), _PATIENCE, 0.05)
        peak = _most(peak, await _fills(bus))
        if first // at_once % 10 == 9:
            say(f"{first + at_once:,} of {machines:,} Machines")
    return peak


async def _settled(bus: Bus, reports: int) -> bool:
    """Whether there are so many reports, each with a deadline, and no run is due."""
    found = await _fills(bus)
    there = found[streams.INTENTS].messages == found[streams.LATER].messages == reports
    return there and not found[streams.TRIGGERS].messages + found[streams.WORK].messages


async def _forgotten(bus: Bus, apis: ApiServers) -> None:
    """Delete one more Machine, since watchers look for old tombstones then; wait until none is left."""

    async def empty() -> bool:
        apis.put(RUNTIME, MACHINES, {"metadata": {"namespace": _NAMESPACE, "name": "last"}, "spec": {}})
        apis.delete(RUNTIME, MACHINES, _NAMESPACE, "last")
        await until(lambda: _settled(bus, 0), _PATIENCE, 0.05)
        return (await _fills(bus))[streams.OBJECTS].messages <= 5  # the marker of the listing, and this one

    await until(empty, _PATIENCE, 0.5)


def _most(one: dict[str, Fill], other: dict[str, Fill]) -> dict[str, Fill]:
    return {name: max(one[name], other[name], key=lambda fill: fill.bytes) for name in _SHOWN}


async def _fills(bus: Bus) -> dict[str, Fill]:
    infos = [await bus.api(f"STREAM.INFO.{name}", repeat=True) for name in _SHOWN]
    states = [info["state"] for info in infos]
    return {name: Fill(state["messages"], state["bytes"]) for name, state in zip(_SHOWN, states, strict=True)}
