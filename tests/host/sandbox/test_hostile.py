"""Hostile objects of all kinds against a whole sandbox: wrong, deep, huge, and at every limit."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bus.transport.connection import connected
from sandbox import roles
from sandbox.options import Options
from sandbox.supervisor import Supervisor
from tests.chaos import converging
from tests.chaos.arena import missing
from tests.support.hostile import attack, endings, manifests
from tests.support.running import eventually
from tools.bench import client as clients
from tools.bench.client import Client, Observer
from tools.bench.shoots import Shoots, namespace
from tools.bench.usage import usage
from windowbox.kinds import KINDS
from windowbox.models.refs import DNSRECORDS, INFRASTRUCTURES

MANY = int(os.environ.get("HOSTILE", "48"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
PATIENCE = 120.0 + MANY / 5
OURS = ("watcher-1", "worker-1", "patcher-1")
MOST_MEMORY = 600.0
"""MiB of one of our processes at the worst moment."""


def test_hostile_objects_cover_all_kinds_of_clients() -> None:
    left_out = {row.pool for row in KINDS} - {row.pool for row in manifests.SERVED}
    # Others make these: controllers make machines for Workers, and workers renew their own Lease.
    assert left_out == {"heartbeat", "machine", "machinedeployment", "machineset"}


@pytest.mark.long  # e2e/test_hostile.py shows neighbours beside nonsense, api/hostile all kinds of it
@pytest.mark.timeout(400 + MANY)
async def test_hostile_objects_fail_and_neighbours_are_served(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    async with (
        Supervisor.running(tmp_path / "hostile", Options(simulated_nodes=2), patience=120) as sandbox,
        clients.opened(sandbox.api) as client,
        connected(converging.access(sandbox)) as bus,
    ):
        async with attack.attack(sandbox, client, max(12, MANY // 10), SEED) as attacking:
            objects = manifests.objects(MANY, attacking.namespaces, SEED, huge=0.02)
            await attacking.create(objects)
            await _serve_neighbours(sandbox, client)
            assert {one.row.pool for one in attacking.made} == {row.pool for row in manifests.SERVED}
            assert len(attacking.made) > MANY / 2
            problems = await endings.problems(client, bus, attacking.made, PATIENCE)
            assert not problems, "\n".join(problems)

        await attacking.delete()

        async def all_gone() -> bool:
            return not await attacking.left()

        await eventually(all_gone, PATIENCE)
        children = sandbox.state.children
        assert {name: child.restarts for name, child in children.items() if child.restarts} == {}
        peaks = {name: usage(children[name].pid or 0).peak for name in OURS}
        assert {name: peak for name, peak in peaks.items() if peak > MOST_MEMORY} == {}
        assert [line for name in OURS for line in _errors(sandbox.folder / "logs" / f"{name}.log")] == []


async def _serve_neighbours(sandbox: Supervisor, client: Client) -> None:
    """A record and an Infrastructure come to be as if nobody else were there."""
    good = Shoots(client, roles.provider_kubeconfig(sandbox.folder))
    await client.prepare()
    await good.prepare(0)
    async with (
        Observer.watching(client, DNSRECORDS) as records,
        Observer.watching(client, INFRASTRUCTURES, namespace(0)) as infrastructures,
    ):
        await client.create(0)
        await good.infrastructure(0)
        await records.all_of([clients.name(0)])
        await infrastructures.all_of(["local-0000"])


def _errors(log: Path) -> list[str]:
    """What a process has logged as an error."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line["message"] for line in lines if line["level"] in ("error", "critical")]
