"""Many Machines of MachineDeployments: created, rolled and deleted. The driver is simulated."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from sandbox import processes, roles
from sandbox.options import Options
from tests.support.machinedriver import SimulatedDriver
from tools.bench import audit
from tools.bench.report import MachineFacts, Report, say, table
from tools.bench.usage import Meter, Usage, usage
from tools.bench.world import World, world
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_DEPLOYMENTS, NAMESPACES

UP_S = 60.0
"""Aim: seconds until all machines run."""
_PATIENCE = 1800.0
_WORKER = "worker-1"
_IDLE = 10.0
"""Seconds over which idleness is measured."""


@dataclass(frozen=True)
class SetsPhase:
    """One operation on all MachineDeployments at once."""

    name: str
    machines: int
    seconds: float
    first_hundred: float
    """Seconds from the first to the hundredth Machine that ran."""
    last_hundred: float
    """The same for the last hundred."""
    writes: float
    """API writes for each Machine, without Events."""
    cpu_ms: float
    """CPU of windowbox's processes for each Machine."""


@dataclass(frozen=True)
class SetsFigures(MachineFacts):
    """The result of `bench machines --scale`."""

    phases: Sequence[SetsPhase]
    peak_mb: Mapping[str, float]
    """The most memory that each process of windowbox had."""
    idle_cpu_percent: float
    """Of one core, with all machines running."""


async def measure(machines: int, namespaces: int) -> Report:
    """Create, roll and delete Machines, evenly spread over one MachineDeployment in each namespace."""
    async with (
        world("machines-scale", Options()) as here,
        kube.from_file(roles.kubeconfig(here.sandbox.folder, "operator")) as api,
    ):
        sets = MachineSets(here, api, SimulatedDriver(api, joining=0.05), machines // namespaces, namespaces)
        async with sets.working():
            say(f"{sets.replicas * namespaces} machines in {namespaces} namespaces")
            phases = [await sets.phase("up", sets.create, _complete)]
            meter = Meter(sets.usage())
            await asyncio.sleep(_IDLE)
            idle = round(sum(meter.read(sets.usage()).percent.values()), 1)
            say("all of them replaced, with a surge of a fifth")

            def rolled(one: Object) -> bool:
                return _complete(one) and bool(one.spec["template"]["spec"]["class"]["name"] == "big")

            phases.append(await sets.phase("rolled", sets.roll, rolled))
            say("their deletion")
            phases.append(await sets.phase("down", sets.delete, None))
            peaks = {name: used.peak for name, used in sets.usage().items()}
    shown = table(
        "Machines of MachineDeployments, with a simulated driver",
        phases,
        {
            "phase": lambda one: one.name,
            "machines": lambda one: str(one.machines),
            "seconds": lambda one: f"{one.seconds:.1f}",
            "machines/s": lambda one: f"{one.machines / one.seconds:.0f}",
            "first 100 s": lambda one: f"{one.first_hundred:.1f}",
            "last 100 s": lambda one: f"{one.last_hundred:.1f}",
            "writes": lambda one: f"{one.writes:.2f}",
            "our CPU ms": lambda one: f"{one.cpu_ms:.1f}",
        },
    )
    figures = SetsFigures(phases, peaks, idle)
    memory = ", ".join(f"{name} {peak:.0f} MB" for name, peak in sorted(figures.peak_mb.items()))
    facts = Text(
        f"Peak memory: {memory}; idle: {figures.idle_cpu_percent} % of a core\n"
        f"Aim: all machines run after {UP_S:.0f} s"
    )
    return Report(figures, [shown, facts])


@dataclass
class MachineSets:
    """One MachineDeployment in each namespace, and the process that serves them."""

    here: World
    api: Kube
    driver: SimulatedDriver
    replicas: int
    namespaces: int
    _worker: int = 0
    """The worker process without a machine driver of its own; the sandbox's worker has one."""
    _seen: dict[str, Object] = field(default_factory=dict)
    """All MachineDeployments, by namespace."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Replace the sandbox's worker by one without a driver, and simulate the driver."""
        settings = str(self.here.sandbox.settings_file(_WORKER))
        await self.here.sandbox.stop(_WORKER)
        pools = ["--pool", "machinedeployment", "--pool", "machineset"]
        command = [sys.executable, "-m", "windowbox", "work", *pools, "--settings", settings]
        child = processes.start(command, self.here.sandbox.folder / "sets.log")
        self._worker = child.pid

        async def follow() -> None:
            while True:
                with contextlib.suppress(WindowboxError):
                    page = await self.api.page(MACHINE_DEPLOYMENTS, limit=5000)
                    self._seen = {Object(raw).namespace: Object(raw) for raw in page.items}
                    self._changed.set()
                    async for events in self.api.watch(MACHINE_DEPLOYMENTS, page.resource_version):
                        for event in events:
                            found = Object(event.object)
                            if event.type == "DELETED":
                                self._seen.pop(found.namespace, None)
                            elif event.type != "BOOKMARK":
                                self._seen[found.namespace] = found
                        self._changed.set()

        tasks = [asyncio.create_task(self.driver.run()), asyncio.create_task(follow())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            child.terminate()
            await asyncio.to_thread(child.wait, 30)

    async def phase(
        self, name: str, act: Callable[[str], Awaitable[None]], holds: Callable[[Object], bool] | None
    ) -> SetsPhase:
        """Call `act` for all namespaces, and measure until all deployments meet `holds`; None: are gone."""

        def done() -> bool:
            if holds is None:
                return not self._seen
            return len(self._seen) == self.namespaces and all(map(holds, self._seen.values()))

        self.driver.ran.clear()
        self.here.audit.requests()
        meter, started = Meter(self.usage()), time.perf_counter()
        await asyncio.gather(*(act(f"shoot--bench--{number:03}") for number in range(self.namespaces)))
        async with asyncio.timeout(_PATIENCE):
            while not done():
                self._changed.clear()
                await self._changed.wait()
        seconds, total = time.perf_counter() - started, self.replicas * self.namespaces
        await self.here.quiet(calm=0.5)
        cpu = sum(meter.read(self.usage()).cpu.values())
        ran = sorted(self.driver.ran)
        return SetsPhase(
            name=name,
            machines=total,
            seconds=round(seconds, 2),
            first_hundred=round(ran[min(99, len(ran) - 1)] - ran[0], 2) if ran else 0.0,
            last_hundred=round(ran[-1] - ran[max(0, len(ran) - 100)], 2) if ran else 0.0,
            writes=round(audit.writes(audit.without_events(self.here.audit.requests())) / total, 2),
            cpu_ms=round(1000 * cpu / total, 1),
        )

    def usage(self) -> dict[str, Usage]:
        ours = {name: used for name, used in self.here.usage().items() if name.startswith(("watch", "patch"))}
        return ours | {_WORKER: usage(self._worker)}

    async def create(self, namespace: str) -> None:
        labels = {"name": "pool"}
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "20%", "maxUnavailable": 0}}
        template_spec = {"class": {"kind": "MachineClass", "name": "small"}}
        deployment = {
            "apiVersion": f"{MACHINE_DEPLOYMENTS.group}/{MACHINE_DEPLOYMENTS.version}",
            "kind": MACHINE_DEPLOYMENTS.kind,
            "metadata": {"name": "pool"},
            "spec": {
                "replicas": self.replicas,
                "revisionHistoryLimit": 0,
                "selector": {"matchLabels": labels},
                "strategy": rolling,
                "template": {"metadata": {"labels": labels}, "spec": template_spec},
            },
        }
        await self.api.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        await self.api.create(MACHINE_DEPLOYMENTS, namespace, deployment)

    async def roll(self, namespace: str) -> None:
        patch = {"spec": {"template": {"spec": {"class": {"name": "big"}}}}}
        await self.api.merge(MACHINE_DEPLOYMENTS, namespace, "pool", patch)

    async def delete(self, namespace: str) -> None:
        await self.api.delete(MACHINE_DEPLOYMENTS, namespace, "pool")


def _complete(found: Object) -> bool:
    wanted = found.spec.get("replicas", 0)
    counts = [found.status.get(name) or 0 for name in ("replicas", "updatedReplicas", "availableReplicas")]
    return found.status.get("observedGeneration") == found.generation and counts == [wanted] * 3
