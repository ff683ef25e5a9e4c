"""Everything goes wrong while records come and go; in the end everything is as it was asked for.

`make test` runs the short version, `make chaos` the long one.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from bus import consumers, streams
from bus.connection import Access, Bus, connected
from bus.messages import RunRecord
from tests import servers
from tests.chaos.havoc import Havoc, Plan
from tests.chaos.load import ZONE, Load, unsettled
from windowbox.clients import kube
from windowbox.errors import WindowboxError
from windowbox.sandbox import stages
from windowbox.sandbox.options import Options
from windowbox.sandbox.supervisor import Supervisor

LONG = os.environ.get("CHAOS") == "long"
SEED = int(os.environ.get("CHAOS_SEED", "42"))
OBJECTS = 1000 if LONG else 150
PLAN = (
    Plan(seconds=420, kills=20, bus_restarts=3, api_restarts=2, dns_away=20)
    if LONG
    else Plan(seconds=25, kills=2, bus_restarts=1, api_restarts=1, dns_away=3)
)
RECORDING = os.environ.get("CHAOS_RECORDING")
"""Where to write a recording of the run: `tests/replay/chaos.wbx` was made so."""
PATIENCE = 180 if LONG else 60
"""Seconds to converge after the last blow."""


@pytest.mark.timeout(1500 if LONG else 240)
async def test_nothing_is_lost_and_nothing_doubled_whatever_dies(tmp_path: Path) -> None:
    if reason := servers.missing(*stages.PROGRAMS):
        pytest.skip(reason)
    options = Options(workers=2, watchers=2, patchers=2)
    async with Supervisor.running(tmp_path / "chaos", options) as sandbox:
        access = _access(sandbox)
        journal = Journal(access)
        async with kube.from_file(Path(sandbox.environment()["KUBECONFIG"])) as api:
            load = Load(api, SEED, OBJECTS)
            havoc = Havoc(sandbox, PLAN, random.Random(SEED), journal.save)
            async with asyncio.TaskGroup() as group:
                group.create_task(load.run(PLAN.seconds))
                group.create_task(havoc.run())
            problems = await _settled(api, access, load.wanted)
            await journal.save()
        if RECORDING:
            _record(sandbox, RECORDING)

        assert not problems, "\n".join(problems)
        assert _zone(sandbox.environment()["DNS_SERVER"]) == {
            f"{name}.chaos.{ZONE}": address for name, address in load.wanted.items()
        }
        assert journal.overlaps() == []
        assert len(journal.runs) > OBJECTS


class Journal:
    """The records of all runs, saved from time to time, since the bus may forget them."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.runs: dict[tuple[str, str, str], RunRecord] = {}

    async def save(self) -> None:
        async with connected(self._access) as bus:
            async for stored in consumers.snapshot(bus, streams.JOURNAL, ["run.>"], history=True):
                run = RunRecord.model_validate_json(stored.data)
                self.runs[run.pool + run.key, run.process, run.started.isoformat()] = run

    def overlaps(self) -> list[str]:
        """In words, which runs of one object were under way at the same time."""
        by_key: dict[str, list[RunRecord]] = defaultdict(list)
        for run in self.runs.values():
            by_key[run.pool + run.key].append(run)
        found = []
        for key, runs in by_key.items():
            runs.sort(key=lambda run: run.started)
            for one, next_one in itertools.pairwise(runs):
                if one.started + timedelta(seconds=one.seconds) > next_one.started:
                    found.append(
                        f"{key}: {one.process} {one.started} and {next_one.process} {next_one.started}"
                    )
        return found


async def _settled(api: kube.Kube, access: Access, wanted: dict[str, str]) -> list[str]:
    """What is still not as it ought to be when patience ends; empty as soon as all is well."""
    deadline = time.monotonic() + PATIENCE
    async with connected(access) as bus:
        while True:
            problems = [*await _attempt(unsettled(api, wanted)), *await _attempt(_waiting(bus))]
            if not problems or time.monotonic() > deadline:
                return problems
            await asyncio.sleep(0.5)


async def _attempt(question: object) -> list[str]:
    try:
        answer: list[str] = await question  # type: ignore[misc]
        return answer
    except WindowboxError as error:
        return [str(error)]


async def _waiting(bus: Bus) -> list[str]:
    """What is still waiting on the bus."""
    waiting = []
    for stream, subject in (
        (streams.TRIGGERS, "trigger.>"),
        (streams.WORK, "work.>"),
        (streams.LATER, "later.>"),
    ):
        state = (await bus.api(f"STREAM.INFO.{stream}", {"subjects_filter": subject}))["state"]
        if stream == streams.WORK:
            waiting += [f"{stream}: {state['messages']} items"] if state["messages"] else []
        else:
            waiting += [f"{stream}: {name}" for name in state.get("subjects") or ()]
    return waiting


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


def _zone(server: str) -> dict[str, str]:
    """Name and address of every A record below chaos."""
    host, _, port = server.rpartition(":")
    answer = subprocess.run(
        ["dig", "+noall", "+answer", "+onesoa", f"@{host}", "-p", port, ZONE, "AXFR"],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    ).stdout
    rows = [line.split() for line in answer.splitlines() if line and not line.startswith(";")]
    return {row[0].rstrip("."): row[4] for row in rows if row[3] == "A" and ".chaos." in row[0]}


def _access(sandbox: Supervisor) -> Access:
    settings = yaml.safe_load(sandbox.settings_file("operator").read_text())["nats"]
    return Access(settings["url"], settings["user"], settings["password"], "chaos")
