"""Many load balancers on one edge: time until all serve, and the cost of idle ones."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from tools.bench import audit, loadbalancers_nodes
from tools.bench.client import NAMESPACE
from tools.bench.concurrently import each
from tools.bench.loadbalancers import Balancers, attempts, noted, opened, summed
from tools.bench.loadbalancers_clients import greeting, ingress
from tools.bench.loadbalancers_figures import Measured, ScaleResult
from tools.bench.usage import Usage, machine, private, usage
from windowbox.models.refs import SERVICES

Say = Callable[[str], None]

_NODES = 4
_SOCKETS = 12_000
"""Node ports of all nodes that the node simulator listens on, one open file for each."""
_SHOWN = 5
_NODE_PORTS = "--service-node-port-range=20000-32767"
"""By default there are fewer than three thousand."""


async def run(sizes: Sequence[int], times: int, idle_seconds: float, say: Say) -> list[ScaleResult]:
    """Measure with so many Services, one size after the other, before simulated nodes."""
    nodes = _NODES if max(sizes) * _NODES <= _SOCKETS else 2
    chosen = loadbalancers_nodes.options(nodes, simulated=True)
    chosen = chosen.model_copy(update={"addresses": (_prefix(),), "apiserver_arguments": (_NODE_PORTS,)})
    say("starting a sandbox with simulated nodes")
    async with opened(chosen) as bench:
        await bench.ground.prepare()
        found, there = [], 0
        for size in sorted(set(sizes)):
            found.append(await _measure(bench, there, size, times, idle_seconds, say))
            there = size
        return found


async def _measure(
    bench: Balancers, there: int, size: int, times: int, idle_seconds: float, say: Say
) -> ScaleResult:
    say(f"{size} Services")
    numbers = range(there, size)
    await each(map(_name, numbers), bench.ground.create_endpoints)
    bench.here.audit.requests()
    seconds, addresses = await _created(bench, [_name(number) for number in numbers])
    await bench.here.quiet()
    requests = bench.here.audit.requests()
    unserved = await _unserved(addresses)
    if len(unserved) > _SHOWN:
        unserved = [f"{len(unserved)} do not serve; among them:", *unserved[:_SHOWN]]
    say(f"{size} Services: one more, {times} times")
    first, begun = await _usage(bench), time.perf_counter()
    one_more = await _one_more(bench, size, times)
    busy, busy_for = _cpu(first, await _usage(bench)), time.perf_counter() - begun
    await bench.here.quiet(patience=60)
    say(f"{size} Services: idle for {idle_seconds:.0f} s")
    before, others, started = await _usage(bench), machine(), time.perf_counter()
    await asyncio.sleep(idle_seconds)
    after, took = await _usage(bench), time.perf_counter() - started
    used = _cpu(before, after)
    elsewhere = machine() - others - sum(used.values())
    pids = await _pids(bench)
    memory = {name: round(private(pid), 1) for name, pid in pids.items()}
    return ScaleResult(
        services=size,
        nodes=bench.ground.kind,
        ready_seconds=round(seconds, 2),
        unserved=unserved,
        envoy_mb=memory.pop("envoy", 0.0),
        memory_mb=memory,
        idle_percent={name: round(100 * cpu / took, 2) for name, cpu in used.items()},
        writes=round(audit.writes(audit.without_events(requests)) / len(numbers), 2),
        requests=_per(requests, len(numbers)),
        one_more=one_more,
        one_more_cpu_ms={
            name: round(1000 * max(0.0, busy[name] - used[name] * busy_for / took) / times, 1)
            for name in busy.keys() & used.keys()
        },
        elsewhere_percent=round(100 * elsewhere / took / (os.cpu_count() or 1), 1),
    )


async def _created(bench: Balancers, names: Sequence[str]) -> tuple[float, list[str]]:
    """Time until the status of each shows an address, and these addresses."""
    patience = 60 + 0.2 * len(names)
    async with asyncio.TaskGroup() as group:
        seeing = [group.create_task(bench.services.sees(name, ingress, patience)) for name in names]
        await asyncio.sleep(0)
        begun = time.perf_counter()

        async def create(name: str) -> None:
            manifest = bench.ground.service(name, [80])
            await bench.here.client.request("POST", SERVICES.path(NAMESPACE), manifest)

        await each(names, create)
    seen = [task.result() for task in seeing]
    return max(when for when, _ in seen) - begun, [ingress(service) for _, service in seen]


async def _one_more(bench: Balancers, size: int, times: int) -> Measured:
    took: list[float] = []
    failed: list[str] = []
    for number in attempts(times, failed):
        with noted(failed):
            name = f"more-{size}-{number}"
            seconds, address = await bench.created(name)
            took.append(seconds)
            await bench.deleted(name, address)
        await asyncio.sleep(0.5)
    return summed(f"create, beside {size}", took, 200, failed, early=bench.early())


async def _unserved(addresses: Iterable[str]) -> list[str]:
    """Addresses that do not serve, and why."""
    reasons: list[str] = []

    async def ask(address: str) -> None:
        try:
            await greeting(address, 80)
        except OSError as error:
            reasons.append(f"{address}: {error!r}")

    await each(addresses, ask)
    return reasons


async def _pids(bench: Balancers) -> dict[str, int]:
    children = bench.here.sandbox.state.children.items()
    pids = {name: child.pid for name, child in children if child.pid}
    return pids | {"envoy" if n == 0 else f"envoy {n}": one.pid for n, one in enumerate(await bench.envoys())}


async def _usage(bench: Balancers) -> dict[str, Usage]:
    pids = await _pids(bench)
    return {name: usage(pid) for name, pid in {**pids, "bench": os.getpid()}.items()}


def _cpu(before: Mapping[str, Usage], after: Mapping[str, Usage]) -> dict[str, float]:
    """Seconds that each process has used meanwhile."""
    return {name: after[name].cpu - before[name].cpu for name in after.keys() & before.keys()}


def _per(requests: Counter[str], count: int) -> dict[str, float]:
    return {what: round(n / count, 2) for what, n in sorted(requests.items())}


def _name(number: int) -> str:
    return f"service-{number:05}"


def _prefix() -> str:
    """A prefix for eight thousand addresses, which other sandboxes of this machine hardly use."""
    pid = os.getpid()
    return f"127.{96 + (pid >> 3 & 31)}.{(pid & 7) * 32}.0/19"
