"""Machines: from the API to nodes that have joined, and back, with simulated kubelets."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from rich.console import RenderableType
from rich.text import Text

from sandbox import roles
from sandbox.options import Options
from sandbox.servers import kubeconfigs
from tools.bench.client import Observer
from tools.bench.extensions_figures import reads
from tools.bench.figures import Phase, Spread
from tools.bench.machines_objects import NAMESPACE, MachineClient, MachineKubelets, named
from tools.bench.tables import table_of
from tools.bench.world import World, world
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINES

Say = Callable[[str], None]

START, JOIN = 1.0, 1.0
"""Seconds until a simulated Pod runs, and from then until its node is ready."""
RUNNING_MS, BURST_S, DELETION_MS, WRITES, READS = 2200.0, 3.0, 1000.0, 8.0, 3.0
"""Aims: for one Machine, for all at once, for the end of one, and for requests to the API for each."""
_WARM_UP = 3


@dataclass(frozen=True)
class MachineFigures:
    """What `bench machines` found."""

    phases: Sequence[Phase]
    after_pod: Spread
    """From a Pod being gone to its Machine being gone."""
    load: tuple[float, float, float] = field(default_factory=os.getloadavg)
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)


async def run(count: int, singles: int, say: Say) -> MachineFigures:
    """Measure with `singles` Machines one after the other, then `count` at once; then their end."""
    say("starting a sandbox")
    async with world("machines", Options()) as here:
        folder = here.sandbox.folder
        made = MachineClient(
            here.client,
            kubeconfigs.provider(folder),
            kubeconfigs.inline(roles.kubeconfig(folder, "target")),
        )
        await made.prepare()
        async with (
            Observer.watching(here.client, MACHINES, NAMESPACE, _runs) as observer,
            MachineKubelets.running(here.client, START, JOIN) as kubelets,
        ):
            return await _measured(here, made, observer, kubelets, count, singles, say)


async def _measured(
    here: World,
    made: MachineClient,
    observer: Observer,
    kubelets: MachineKubelets,
    count: int,
    singles: int,
    say: Say,
) -> MachineFigures:
    measured = partial(here.measured, named=named, observer=observer)
    alone = range(count, count + singles)
    await measured("warm up", range(count + singles, count + singles + _WARM_UP), made.create)
    say(f"{singles} Machines one after the other, {count} at once")
    phases = [
        await measured("isolated", alone, made.create, one_by_one=True),
        await measured("create", range(count), made.create),
    ]
    say("their end")
    phases.append(await measured("delete one", alone, made.delete, gone=True, one_by_one=True))
    ended = dict(observer.seen)
    after = [ended[name] - at for name, at in kubelets.gone.items() if name in ended]
    phases.append(await measured("delete", range(count), made.delete, gone=True))
    return MachineFigures(phases, Spread.of(after))


def _runs(machine: Object) -> bool:
    current = machine.status.get("currentStatus") or {}
    return bool(current.get("phase") == "Running")


def shown(figures: MachineFigures) -> list[RenderableType]:
    table = table_of(
        f"Machines; Pods run after {START:g} s, nodes join {JOIN:g} s later",
        "phase", "machines", "seconds", "p50 ms", "p95 ms", "max ms", "our CPU ms", "writes", "reads",
    )  # fmt: skip
    for phase in figures.phases:
        spread = phase.latency or Spread(0, 0, 0)
        table.add_row(
            phase.name, str(phase.count), f"{phase.seconds:.2f}", f"{spread.p50:.0f}", f"{spread.p95:.0f}",
            f"{spread.max:.0f}", f"{phase.our_cpu_ms:.1f}", f"{phase.writes:.2f}",
            f"{reads(phase.requests):.2f}",
        )  # fmt: skip
    busy = ", ".join(f"{each:.1f}" for each in figures.load)
    return [
        table,
        Text(
            f"From a Pod being gone to its Machine being gone: p50 {figures.after_pod.p50} ms, p95 "
            f"{figures.after_pod.p95} ms (aim: {DELETION_MS:.0f} ms)\n"
            f"Aims: one Machine runs after {RUNNING_MS:.0f} ms, 20 at once after {BURST_S:.0f} s; "
            f"{WRITES:.0f} writes and {READS:.0f} reads for each\n"
            f"This machine: {figures.cores} cores; load in the last 1, 5, 15 minutes: {busy}"
        ),
    ]
