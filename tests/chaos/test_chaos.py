"""Everything goes wrong while records come and go; in the end everything is as it was asked for.

`make chaos` runs the long version, `make test LONG=1` the short one; with CHAOS_NATS=3 on three NATS servers.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from bus.transport.connection import connected
from sandbox import stages
from sandbox.options import Options
from sandbox.supervisor import Supervisor
from tests.chaos import buses, converging
from tests.chaos.converging import Journal, settled, waiting
from tests.chaos.havoc import Havoc, Plan
from tests.chaos.load import Load, resolved, unsettled
from tests.support import servers
from windowbox.clients.kubernetes import kube

LONG = os.environ.get("CHAOS") == "long"
SEED = int(os.environ.get("CHAOS_SEED", "42"))
OBJECTS = 1000 if LONG else 150
PLAN = (
    Plan(seconds=420, kills=20, bus_restarts=3, api_restarts=2, dns_away=20)
    if LONG
    else Plan(seconds=25, kills=2, bus_restarts=1, api_restarts=1, dns_away=3)
)
RECORDING = os.environ.get("CHAOS_RECORDING")
"""Where to write a recording of the run: `tests/unit/replay/chaos.wbx` was made so."""
PATIENCE = (180 if LONG else 60) * buses.PATIENCE
"""Seconds to converge after the last blow."""


@pytest.mark.long
@pytest.mark.timeout((1500 if LONG else 240) * buses.PATIENCE)
async def test_nothing_is_lost_and_nothing_doubled_whatever_dies(tmp_path: Path) -> None:
    if reason := servers.missing(*stages.PROGRAMS):
        pytest.skip(reason)
    options = Options(workers=2, watchers=2, patchers=2, nats_servers=buses.SERVERS)
    async with Supervisor.running(tmp_path / "chaos", options) as sandbox:
        access = converging.access(sandbox)
        journal = Journal(access)
        async with kube.from_file(Path(sandbox.environment()["KUBECONFIG"])) as api:
            load = Load(api, SEED, OBJECTS)
            havoc = Havoc(sandbox, PLAN, random.Random(SEED), journal.save)
            async with asyncio.TaskGroup() as group:
                group.create_task(load.run(PLAN.seconds))
                group.create_task(havoc.run())
            async with connected(access) as bus:
                problems = await settled(PATIENCE, lambda: unsettled(api, load.wanted), lambda: waiting(bus))
            await journal.save()
        if RECORDING:
            _record(sandbox, RECORDING)

        assert not problems, "\n".join(problems)
        assert resolved(sandbox.environment()["DNS_SERVER"]) == load.names()
        assert journal.overlaps() == []
        assert len(journal.runs) > OBJECTS


def _record(sandbox: Supervisor, file: str) -> None:
    settings = str(sandbox.settings_file("operator"))
    command = [
        sys.executable,
        "-m",
        "windowbox",
        "record",
        "--since",
        "1h",
        "-o",
        file,
        "--settings",
        settings,
    ]
    subprocess.run(command, check=True, timeout=60)
