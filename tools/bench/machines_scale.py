"""Many machines in many namespaces, made, rolled and deleted. The driver is simulated."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from sandbox import processes, roles
from sandbox.options import Options
from tools.bench import audit
from tools.bench.machinedriver import SimulatedDriver
from tools.bench.tables import table_of
from tools.bench.usage import Usage, usage
from tools.bench.world import World, world
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_DEPLOYMENTS, NAMESPACES

Say = Callable[[str], None]

UP_S = 60.0
"""Aim: until all machines run."""
_PATIENCE = 1800.0
_WORKER = "worker-1"
_IDLE = 10.0
"""Seconds over which idleness is measured."""


@dataclass(frozen=True)
class ScalePhase:
    """One operation on all MachineDeployments at once."""

    name: str
    machines: int
    seconds: float
    first_hundred: float
    last_hundred: float
    """Seconds from one to the other, of the first hundred machines that ran, and of the last."""
    writes: float
    cpu_ms: float
    """CPU of windowbox's processes, and requests that write: for each machine."""


@dataclass(frozen=True)
class ScaleFigures:
    phases: Sequence[ScalePhase]
    peak_mb: Mapping[str, float]
    """Memory of windowbox's processes at the worst moment."""
    idle_cpu_percent: float
    """Of one core, with all machines there and nothing to do."""
    load: tuple[float, float, float] = field(default_factory=os.getloadavg)
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)


async def run(machines: int, namespaces: int, say: Say) -> ScaleFigures:
    """Make, roll and delete `machines` machines, evenly spread over `namespaces` deployments."""
    say("starting a sandbox")
    async with world("machines-scale", Options()) as here, contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(
            kube.from_file(roles.kubeconfig(here.sandbox.folder, "operator"))
        )
        driver = SimulatedDriver(api, joining=0.05)
        scale = _Scale(here, api, driver, machines // namespaces, namespaces)
        await stack.enter_async_context(scale.working())
        return await scale.measured(say)


@dataclass
class _Scale:
    here: World
    api: Kube
    driver: SimulatedDriver
    replicas: int
    namespaces: int
    worker: int = 0
    """The process of our own workers: those of the sandbox have a driver that is not simulated."""
    seen: dict[str, Object] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Workers that serve machines' sets, and a driver that is simulated."""
        settings = str(self.here.sandbox.settings_file(_WORKER))
        await self.here.sandbox.stop(_WORKER)
        pools = ["--pool", "machinedeployment", "--pool", "machineset"]
        command = [sys.executable, "-m", "windowbox", "work", *pools, "--settings", settings]
        child = processes.start(command, self.here.sandbox.folder / "sets.log")
        self.worker = child.pid
        tasks = [asyncio.create_task(self.driver.run()), asyncio.create_task(self._watch())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            child.terminate()
            await asyncio.to_thread(child.wait, 30)

    async def measured(self, say: Say) -> ScaleFigures:
        total = self.replicas * self.namespaces
        say(f"{total} machines in {self.namespaces} namespaces")
        phases = [await self._phase("up", self._create, _complete)]
        idle = await self._idle()
        say("all of them replaced, with a surge of a fifth")
        phases.append(await self._phase("rolled", self._roll, lambda one: _complete(one) and _rolled(one)))
        say("their end")
        phases.append(await self._phase("down", self._delete, None))
        peaks = {name: used.peak for name, used in self._usage().items()}
        return ScaleFigures(phases, peaks, idle)

    async def _phase(
        self,
        name: str,
        act: Callable[[int], Awaitable[None]],
        holds: Callable[[Object], bool] | None,
    ) -> ScalePhase:
        self.driver.ran.clear()
        self.here.audit.requests()
        before, started = self._usage(), time.perf_counter()
        await asyncio.gather(*(act(number) for number in range(self.namespaces)))
        async with asyncio.timeout(_PATIENCE):
            while not self._done(holds):
                self.changed.clear()
                await self.changed.wait()
        seconds, total = time.perf_counter() - started, self.replicas * self.namespaces
        await self.here.quiet(calm=0.5)
        cpu = sum(used.cpu - before[name].cpu for name, used in self._usage().items())
        ran = sorted(self.driver.ran)
        return ScalePhase(
            name=name,
            machines=total,
            seconds=round(seconds, 2),
            first_hundred=round(ran[min(99, len(ran) - 1)] - ran[0], 2) if ran else 0.0,
            last_hundred=round(ran[-1] - ran[max(0, len(ran) - 100)], 2) if ran else 0.0,
            writes=round(audit.writes(audit.without_events(self.here.audit.requests())) / total, 2),
            cpu_ms=round(1000 * cpu / total, 1),
        )

    def _done(self, holds: Callable[[Object], bool] | None) -> bool:
        if holds is None:
            return not self.seen
        return len(self.seen) == self.namespaces and all(map(holds, self.seen.values()))

    async def _idle(self) -> float:
        before = self._usage()
        await asyncio.sleep(_IDLE)
        return round(
            100 * sum(used.cpu - before[name].cpu for name, used in self._usage().items()) / _IDLE, 1
        )

    def _usage(self) -> dict[str, Usage]:
        ours = {name: used for name, used in self.here.usage().items() if name.startswith(("watch", "patch"))}
        return ours | {_WORKER: usage(self.worker)}

    async def _create(self, number: int) -> None:
        name = _namespace(number)
        await self.api.create(NAMESPACES, "", {"metadata": {"name": name}})
        await self.api.create(MACHINE_DEPLOYMENTS, name, _deployment(self.replicas))

    async def _roll(self, number: int) -> None:
        patch = {"spec": {"template": {"spec": {"class": {"name": "big"}}}}}
        await self.api.merge(MACHINE_DEPLOYMENTS, _namespace(number), "pool", patch)

    async def _delete(self, number: int) -> None:
        await self.api.delete(MACHINE_DEPLOYMENTS, _namespace(number), "pool")

    async def _watch(self) -> None:
        """Know all MachineDeployments."""
        while True:
            with contextlib.suppress(WindowboxError):
                page = await self.api.page(MACHINE_DEPLOYMENTS, limit=5000)
                self.seen = {Object(raw).namespace: Object(raw) for raw in page.items}
                self.changed.set()
                async for events in self.api.watch(MACHINE_DEPLOYMENTS, page.resource_version):
                    for event in events:
                        self._take(event.type, Object(event.object))

    def _take(self, type_: str, found: Object) -> None:
        if type_ == "DELETED":
            self.seen.pop(found.namespace, None)
        elif type_ != "BOOKMARK":
            self.seen[found.namespace] = found
        self.changed.set()


def shown(figures: ScaleFigures) -> list[RenderableType]:
    table = table_of(
        "Machines of MachineDeployments, with a simulated driver",
        "phase", "machines", "seconds", "machines/s", "first 100 s", "last 100 s", "writes", "our CPU ms",
    )  # fmt: skip
    for phase in figures.phases:
        table.add_row(
            phase.name, str(phase.machines), f"{phase.seconds:.1f}", f"{phase.machines / phase.seconds:.0f}",
            f"{phase.first_hundred:.1f}", f"{phase.last_hundred:.1f}", f"{phase.writes:.2f}",
            f"{phase.cpu_ms:.1f}",
        )  # fmt: skip
    busy = ", ".join(f"{each:.1f}" for each in figures.load)
    memory = ", ".join(f"{name} {peak:.0f} MB" for name, peak in sorted(figures.peak_mb.items()))
    return [
        table,
        Text(
            f"Memory at the worst moment: {memory}; idle: {figures.idle_cpu_percent} % of a core\n"
            f"Aim: all machines run after {UP_S:.0f} s\n"
            f"This machine: {figures.cores} cores; load in the last 1, 5, 15 minutes: {busy}"
        ),
    ]


def _namespace(number: int) -> str:
    return f"shoot--bench--{number:03}"


def _deployment(replicas: int) -> dict[str, Any]:
    labels = {"name": "pool"}
    return {
        "apiVersion": f"{MACHINE_DEPLOYMENTS.group}/{MACHINE_DEPLOYMENTS.version}",
        "kind": MACHINE_DEPLOYMENTS.kind,
        "metadata": {"name": "pool"},
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": labels},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "20%", "maxUnavailable": 0},
            },
            "template": {
                "metadata": {"labels": labels},
                "spec": {"class": {"kind": "MachineClass", "name": "small"}},
            },
        },
    }


def _complete(found: Object) -> bool:
    wanted = found.spec.get("replicas", 0)
    counts = [found.status.get(name) or 0 for name in ("replicas", "updatedReplicas", "availableReplicas")]
    return found.status.get("observedGeneration") == found.generation and counts == [wanted] * 3


def _rolled(found: Object) -> bool:
    return bool(found.spec["template"]["spec"]["class"]["name"] == "big")
