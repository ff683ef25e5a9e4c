"""Many load balancers on one edge: time until all serve, the cost of one more, and that of idle ones."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import RenderableType
from rich.text import Text

from commands.demo.traffic import first_line
from tools.bench import audit
from tools.bench.client import NAMESPACE, each
from tools.bench.loadbalancers import nodesetup
from tools.bench.loadbalancers.lives import NODE_COUNT, Balancers, opened
from tools.bench.loadbalancers.traffic import CONNECTING, ingress
from tools.bench.report import Measured, Report, is_ours, listed, measured_parts, repeated, say, table
from tools.bench.usage import Meter, private
from windowbox.models.refs import SERVICES

_SOCKETS = 12_000
"""The most node ports of all nodes that the node simulator listens on: each is an open file."""
_SHOWN = 5
_NODE_PORTS = "--service-node-port-range=20000-32767"
"""The default range has fewer than three thousand."""


@dataclass(frozen=True)
class CrowdFigures:
    """Many load balancers on one edge: the result of `bench loadbalancer --scale` for one number of them."""

    services: int
    nodes: str
    ready_seconds: float
    """From the first request to the last status."""
    unserved: Sequence[str]
    """Why some do not serve although their status shows an address."""
    envoy_mb: float
    memory_mb: Mapping[str, float]
    """Private memory of each other process."""
    idle_percent: Mapping[str, float]
    """CPU of each idle process, in percent of one core."""
    writes: float
    """API writes for each load balancer created, without Events."""
    requests: Mapping[str, float]
    one_more: Measured | None = None
    one_more_cpu_ms: Mapping[str, float] = field(default_factory=dict)
    """CPU of each process for one more, created and deleted, beyond what it uses when idle."""
    elsewhere_percent: float = 0.0
    """How much of the machine other processes used during the idle time."""

    @property
    def ours_idle(self) -> float:
        """CPU of Envoy and windowbox together."""
        return sum(used for name, used in self.idle_percent.items() if is_ours(name) or name == "envoy")


async def measure(sizes: Sequence[int], times: int, idle_seconds: float) -> Report:
    """Measure with each of these numbers of Services, before simulated nodes."""
    nodes = NODE_COUNT if max(sizes) * NODE_COUNT <= _SOCKETS else 2
    pid, found, there = os.getpid(), list[CrowdFigures](), 0
    # Eight thousand addresses, which other sandboxes of this machine rarely use.
    prefix = f"127.{96 + (pid >> 3 & 31)}.{(pid & 7) * 32}.0/19"
    chosen = nodesetup.options(nodes, simulated=True)
    chosen = chosen.model_copy(update={"addresses": (prefix,), "apiserver_arguments": (_NODE_PORTS,)})
    async with opened(chosen) as bench:
        await bench.ground.prepare()
        for size in sorted(set(sizes)):
            found.append(await _grown(bench, there, size, times, idle_seconds))
            there = size
    more = [one.one_more for one in found if one.one_more]
    crowds = table(
        "Many load balancers on one edge (idle: Envoy and windowbox, % of a core)",
        found,
        {
            "Services": lambda one: str(one.services),
            "ready, s": lambda one: f"{one.ready_seconds:.1f}",
            "Envoy, MB": lambda one: f"{one.envoy_mb:.1f}",
            "ours, MB": lambda one: ", ".join(
                f"{mb:.0f}" for n, mb in sorted(one.memory_mb.items()) if is_ours(n)
            ),
            "idle": lambda one: f"{one.ours_idle:.2f}",
            "of Envoy": lambda one: f"{one.idle_percent.get('envoy', 0):.2f}",
            "API writes": lambda one: f"{one.writes:.2f}",
            "others, %": lambda one: f"{one.elsewhere_percent:.0f}",
        },
    )
    lines: list[RenderableType] = []
    for one in found:
        lines += [Text(f"does not serve: {reason}") for reason in one.unserved]
        idle = ", ".join(f"{name} {used:.2f}" for name, used in sorted(one.idle_percent.items()))
        cpu = ", ".join(f"{name} {used:.1f}" for name, used in sorted(one.one_more_cpu_ms.items()))
        lines += [
            Text(f"idle with {one.services}, % of a core: {idle}"),
            Text(f"API requests for each of {one.services}: {listed(one.requests)}"),
            Text(f"one more beside {one.services}, created and deleted, CPU in ms: {cpu}"),
        ]
    return Report(found, [crowds, *lines, *measured_parts("One more of them", more)])


async def _grown(bench: Balancers, there: int, size: int, times: int, idle_seconds: float) -> CrowdFigures:
    """Add Services to those that are there, then measure one more, and idleness."""
    say(f"{size} Services")
    here, names = bench.here, [f"service-{number:05}" for number in range(there, size)]
    await each(names, bench.ground.create_endpoints)
    here.audit.requests()

    async def create(name: str) -> None:
        await here.client.request("POST", SERVICES.path(NAMESPACE), bench.ground.service(name, [80]))

    begun = time.perf_counter()
    await each(names, create)
    seen = await bench.services.all_of(names)
    seconds = max(seen[name] for name in names) - begun
    await here.quiet()
    requests = here.audit.requests()
    unserved = await _unserved(ingress(bench.services.objects[name]) for name in names)
    say(f"{size} Services: one more, {times} times")
    meter = Meter(await bench.usage())
    one_more = bench.births(f"create, beside {size}", await repeated(times, bench.life), 200)
    busy = meter.read(await bench.usage())
    await here.quiet(patience=60)
    say(f"{size} Services: idle for {idle_seconds:.0f} s")
    meter = Meter(await bench.usage())
    await asyncio.sleep(idle_seconds)
    idle = meter.read(await bench.usage())
    memory = {name: round(private(pid), 1) for name, pid in (await bench.pids()).items()}
    return CrowdFigures(
        services=size,
        nodes=bench.ground.kind,
        ready_seconds=round(seconds, 2),
        unserved=unserved,
        envoy_mb=memory.pop("envoy", 0.0),
        memory_mb=memory,
        idle_percent=idle.percent,
        writes=round(audit.writes(audit.without_events(requests)) / len(names), 2),
        requests={what: round(n / len(names), 2) for what, n in sorted(requests.items())},
        one_more=one_more,
        one_more_cpu_ms={
            name: round(1000 * max(0.0, cpu - idle.cpu[name] * busy.seconds / idle.seconds) / times, 1)
            for name, cpu in busy.cpu.items()
            if name in idle.cpu
        },
        elsewhere_percent=idle.elsewhere_percent,
    )


async def _unserved(addresses: Iterable[str]) -> list[str]:
    """Why some of these addresses do not serve."""
    reasons = list[str]()

    async def connect(address: str) -> None:
        try:
            await first_line(address, 80, CONNECTING)
        except OSError as error:
            reasons.append(f"{address}: {error!r}")

    await each(addresses, connect)
    if len(reasons) > _SHOWN:
        return [f"{len(reasons)} do not serve; among them:", *reasons[:_SHOWN]]
    return reasons
