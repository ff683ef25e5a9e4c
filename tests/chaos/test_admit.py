"""Two processes that answer webhooks, one of which ends again and again while an API server asks."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import orjson
import pytest

from sandbox import stages
from sandbox.options import Options
from tests.support import servers
from tests.support.cases import cases
from tests.support.running import eventually
from tools.bench import admission, requests
from tools.bench.world import World, world
from windowbox.models.refs import DEPLOYMENTS

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PATIENCE = 120.0


async def _end(here: World, name: str, number: signal.Signals) -> None:
    """Signal the process, and wait until its successor is ready."""
    pid = here.sandbox.state.children[name].pid
    assert pid
    os.kill(pid, number)

    async def succeeded() -> bool:
        return here.sandbox.state.children[name].pid not in (pid, None)

    await eventually(succeeded, PATIENCE)
    await here.sandbox.ready(name)


@cases("number", ("ended", signal.SIGTERM), ("killed", signal.SIGKILL))
async def test_reviews_are_answered_while_processes_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    servers.need(*stages.PROGRAMS)
    monkeypatch.setenv("WINDOWBOX_HOME", str(tmp_path))
    path, body = f"{DEPLOYMENTS.path(admission.SHOOT)}?dryRun=All", orjson.dumps(admission.deployment())
    asked = requests.Answers()
    async with world("kills", Options(workers=0, patchers=0, admits=2)) as here:
        await admission.prepare(here)

        async def ask(_: int) -> None:
            await here.client.request("POST", path, body)

        asking = asyncio.create_task(requests.at_rate(ask, 20, 100_000, asked))
        for name in ("admit-1", "admit-2"):
            await _end(here, name, number)
        asking.cancel()
        await asyncio.wait([asking])
    assert len(asked.seconds) > 20
    assert not asked.failed
