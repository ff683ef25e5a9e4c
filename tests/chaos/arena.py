"""A sandbox under load, and those who take part in every chaos run."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bus.transport.connection import Bus, connected
from sandbox import processes, stages
from sandbox.options import Options
from sandbox.simulated import simulatedchildren as simulated
from sandbox.supervisor import Supervisor
from tests.chaos import converging, havoc
from tests.chaos.breaking import Envoys
from tests.chaos.converging import Journal
from tests.chaos.services import Witness
from tests.support import servers
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing
from windowbox.settings.bussettings import Access
from workers.loadbalancer.launcher import programs

LONG = os.environ.get("CHAOS") == "long"


@dataclass
class Arena:
    sandbox: Supervisor
    kube: Kube
    access: Access
    bus: Bus
    envoys: Envoys
    witness: Witness
    journal: Journal

    @property
    def problems(self) -> list[str]:
        """What was noted on the way."""
        return self.witness.problems + self.envoys.problems + self.journal.overlaps()


@contextlib.asynccontextmanager
async def arena(folder: Path, *, prefix: str, patience: float = 60, **options: Any) -> AsyncIterator[Arena]:
    """Two processes of each role, with simulated nodes and Envoy."""
    if reason := missing():
        pytest.skip(reason)
    port = processes.free_port()
    chosen = Options(
        workers=2, watchers=2, patchers=2, nats_servers=havoc.SERVERS,
        # Addresses of its own, as the port is.
        ports={"nats-server": port}, addresses=(f"127.{port >> 8}.{port & 255}.{prefix}",), **options,
    )  # fmt: skip
    async with (
        Supervisor.running(folder / "chaos", chosen, patience=patience) as sandbox,
        kube.from_file(Path(sandbox.environment()["KUBECONFIG"])) as api,
        connected(access := converging.access(sandbox)) as bus,
        asyncio.TaskGroup() as group,
    ):
        envoys, witness = Envoys(sandbox.folder / "edge"), Witness(api)
        looking = [group.create_task(look) for look in (envoys.run(), witness.run(), witness.run_book(bus))]
        yield Arena(sandbox, api, access, bus, envoys, witness, Journal(access))
        for task in looking:
            task.cancel()


def missing() -> str | None:
    """Why simulated nodes and Envoy cannot run on this machine; None if they can."""
    if reason := servers.missing(*stages.PROGRAMS, *stages.SIMULATED_PROGRAMS):
        return reason
    if not simulated.can_listen("127.77.0.1"):
        return "127.77.0.1 is no address of this machine: simulated nodes need all of 127.0.0.0/8"
    try:
        programs.packaged()
    except Missing as error:
        return str(error)
    return None
