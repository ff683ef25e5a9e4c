"""No exception ends a task that runs under a lease, its lease, or its process."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import watchers.watching
from bus import streams, subjects
from bus.clusters.registry import Registry
from bus.leases import guard
from bus.leases.leases import Leases
from bus.transport import buckets
from bus.transport.connection import Bus
from bus.workqueue.queue import Queue
from commands.roles import patching, roleprocess, watching, working
from commands.roles.roleprocess import Process
from tests.support import exceptions
from tests.support.running import running, soon
from watchers.mirror import Mirror
from watchers.watching import Watching
from webhooks import keeping
from webhooks.keeping import Keeping, Served
from webhooks.server import Certificates
from windowbox.kinds import POOLS
from windowbox.settings.settings import Settings
from windowbox.settings.webhooksettings import WebhookSettings
from windowbox.telemetry import metrics
from workers.core.owned.ownedorphans import OwnedOrphans
from workers.core.owned.targets import TargetClusters
from workers.dns.record.orphans import OrphanedNames
from workers.kinds.membership.clusterjoining import Joining
from workers.kinds.membership.providermembership import ProviderMembership
from workers.loadbalancer.edge import controller
from workers.loadbalancer.edge.edges import Edges
from workers.loadbalancer.service import upkeep
from workers.loadbalancer.service.adoption import Adoption

ROOT = Path(roleprocess.__file__).parents[2]
WATCH = "watch.runtime.namespaces"
CONFIGURATIONS = "windowbox-webhooks"

LEASED: dict[str, tuple[type, str]] = {
    "addresses": (Adoption, "adopt"),
    "drift.infrastructure": (TargetClusters, "installation"),
    "edge": (Edges, "route"),
    "join": (Joining, "_reconcile"),
    "providers": (ProviderMembership, "_reconcile"),
    "sweep.patch": (Queue, "sweep"),
    "twins.dnsrecord": (OrphanedNames, "check"),
    **{f"sweep.{pool}": (Queue, "sweep") for pool in POOLS},
}
"""All leased tasks of roles, and the method of each into which exceptions are thrown."""

LEASED_OTHERWISE = {
    ("commands/roles/admitting.py", "while_held"),  # CONFIGURATIONS
    ("commands/roles/admitting.py", "while_leading"),  # the same, without a bus
    ("commands/roles/roleprocess.py", "while_held"),  # LEASED
    ("watchers/watching.py", "once"),  # a purge
    ("watchers/watching.py", "while_held"),  # WATCH
}
"""Where the product takes leases."""


@pytest_asyncio.fixture
async def process(one_bus: Bus, tmp_path: Path) -> AsyncIterator[Process]:
    """A process with all pools, patchers, watchers and an edge."""
    zones = [{"name": "local.gardener.cloud", "servers": ["127.0.0.1:1"]}]
    settings = Settings.model_validate(
        {
            "backup": {"root": tmp_path},
            "dns": {"zones": zones, "drift_interval": 0.01},
            "heartbeat": {"namespace": "garden"},
            "loadbalancer": {"ranges": [{"prefixes": ["127.200.0.0/30"]}], "folder": tmp_path},
            "work": {"sweep_interval": 0.01},
        }
    )
    leases, registry = Leases(one_bus, "me", "run"), Registry(one_bus)
    async with contextlib.AsyncExitStack() as closing:
        made = Process(settings, "run", one_bus, leases, registry, closing, _clusters=Clusters())  # type: ignore[arg-type]
        await working.work(made, POOLS)
        await patching.patch(made)
        await watching.watch(made)
        yield made


class Clusters:
    """API servers that no test reaches."""

    runtime: Any = None

    async def get(self, cluster: str) -> None:
        return None


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks wait a moment only until they run again."""
    for module, name in (
        (controller, "_PATIENCE"),
        (guard, "FIRST"),
        (guard, "_LONGEST"),
        (keeping, "_PAUSE"),
        (upkeep, "_RETRY"),
        (upkeep, "_RETRY_LATER"),
        (watchers.watching, "_LONGEST_PAUSE"),
        (watchers.watching, "_PAUSE_OF_YOUNG"),
    ):
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(controller, "_pause_after", lambda failures: 0.01)
    defaults = {**(OwnedOrphans.__init__.__kwdefaults__ or {}), "interval": 0.01}
    monkeypatch.setattr(OwnedOrphans.__init__, "__kwdefaults__", defaults)


class Trap:
    """Replaces a method: each call raises an exception of another kind, and the last one only waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, of: type, method: str) -> None:
        self.survived = asyncio.Event()
        left = exceptions.any_kind()
        trap = self

        async def act(*_: object, **__: object) -> Any:
            if left:
                raise left.pop()
            trap.survived.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(of, method, act)


@pytest.mark.parametrize("lease", LEASED)
async def test_a_leased_task_goes_on_after_any_exception(
    process: Process, one_bus: Bus, monkeypatch: pytest.MonkeyPatch, lease: str
) -> None:
    trap = Trap(monkeypatch, *LEASED[lease])
    beside = [process.leases.run, process.registry.run]
    beside += [act for name, act in process.tasks.items() if name.endswith(" of loadbalancer")]
    await survives(one_bus, lease, trap, process.tasks[f"lease {lease}"], *beside)


async def test_the_watch_of_a_kind_goes_on_after_any_exception(
    process: Process, one_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = Trap(monkeypatch, Mirror, "run")
    watching = Watching(one_bus, process.leases, Clusters(), process.registry, ("namespaces",))  # type: ignore[arg-type]
    await survives(one_bus, WATCH, trap, watching.run, process.leases.run, process.registry.run)


async def test_webhooks_are_configured_after_any_exception(
    process: Process, one_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = Trap(monkeypatch, Keeping, "_write")
    monkeypatch.setattr(keeping, "_follow", lambda *_: asyncio.Event().wait())

    async def trusted() -> None:
        """Nobody is told."""

    served = Served(WebhookSettings(), None, None)  # type: ignore[arg-type]
    keep = Keeping(served, Certificates(), trusted).keep
    held = partial(process.leases.while_held, CONFIGURATIONS, keep)
    await survives(one_bus, CONFIGURATIONS, trap, held, process.leases.run)


def test_no_task_of_a_role_runs_under_a_lease_unlisted(process: Process) -> None:
    found = {name.removeprefix("lease ") for name in process.tasks if name.startswith("lease ")}
    assert found == LEASED.keys()


def test_no_module_takes_a_lease_unlisted() -> None:
    found = set()
    for room in ("bus", "clouds", "commands", "patchers", "watchers", "webhooks", "windowbox", "workers"):
        for path in (ROOT / room).rglob("*.py"):
            for call in re.findall(r"\.(while_held|while_leading|once)\b", path.read_text()):
                found.add((str(path.relative_to(ROOT)), call))
    # A grant is made once or again and again, without a lease.
    others = {("commands/processes.py", "once"), ("windowbox/rights/granting.py", "once")}
    assert found - others == LEASED_OTHERWISE


async def survives(bus: Bus, lease: str, trap: Trap, *work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """The exceptions are counted and end no task; the lease is held."""
    before = counted()
    async with running(*(task() for task in work)) as tasks:
        survived = asyncio.create_task(trap.survived.wait())
        await soon(asyncio.wait([survived, *tasks], return_when=asyncio.FIRST_COMPLETED))
        assert not [task for task in tasks if task.done()]
        last = await bus.last(f"KV_{streams.LEASES}", subjects.entry(streams.LEASES, lease))
        assert last
        assert not buckets.gone(last)
    assert counted() - before >= len(exceptions.bugs())


def counted() -> float:
    """The exceptions that guards have counted, of all tasks."""
    samples = [sample for one in metrics.guarded.collect() for sample in one.samples]
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))
