"""Without a bus, the holder of a Lease of the API writes the configurations of a garden's admission."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest_asyncio

from bus.workqueue.pool import this_process
from commands.roles.admitting import admitting
from sandbox import processes
from tests.support.admission import NAMESPACE, Seed, admitted, settings_for
from tests.support.proxy import proxy
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.leaderelection import LeaderElection, Times
from windowbox.models.refs import LEASES
from windowbox.rights import webhookconfigurations

NAME = "gardener-extension-admission-local"
QUICK = Times(lease=1, renewal=0.6, retry=0.1)
CONFIGURATION = webhookconfigurations.RESOURCES["ValidatingWebhookConfiguration"]


@pytest_asyncio.fixture
async def lone(seed: Seed) -> AsyncIterator[Seed]:
    await seed.kube.remove(LEASES, NAMESPACE, NAME)
    yield seed
    await seed.kube.remove(LEASES, NAMESPACE, NAME)


class Leading:
    """The leader's task, and whether it runs."""

    def __init__(self) -> None:
        self.begun = 0
        self.now = False

    async def act(self) -> None:
        self.begun += 1
        self.now = True
        try:
            await asyncio.Event().wait()
        finally:
            self.now = False


def _election(seed: Seed, identity: str) -> LeaderElection:
    return LeaderElection(seed.kube, NAMESPACE, NAME, identity, QUICK)


async def _held_by(seed: Seed) -> str:
    found = await seed.kube.find(LEASES, NAMESPACE, NAME)
    return str(found.spec.get("holderIdentity") or "") if found else ""


async def _renewed(seed: Seed) -> None:
    """Wait for the next renewal of the Lease by its holder."""
    before = (await seed.kube.get(LEASES, NAMESPACE, NAME)).spec["renewTime"]

    async def changed() -> bool:
        return bool((await seed.kube.get(LEASES, NAMESPACE, NAME)).spec["renewTime"] != before)

    await eventually(changed)


async def _renew(seed: Seed, identity: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec: dict[str, Any] = {"holderIdentity": identity, "renewTime": now, "leaseDurationSeconds": 1}
    await seed.kube.merge(LEASES, NAMESPACE, NAME, {"spec": spec})


async def test_the_admission_of_a_garden_works_without_a_bus(plane: ControlPlane, lone: Seed) -> None:
    seed, nowhere = lone, f"nats://127.0.0.1:{processes.free_port()}"
    settings = settings_for(plane, nowhere, role="admission", garden_lease=NAME)
    async with contextlib.AsyncExitStack() as first:
        await first.enter_async_context(admitted(settings, garden=True))
        assert await seed.kube.get(CONFIGURATION, "", NAME)
        async with admitting(settings, garden=True, process="second") as second, running(second.run()):
            await eventually(lambda: second.ready)
            for _ in range(3):  # the second tries as often as the first renews
                await _renewed(seed)
            assert await _held_by(seed) == this_process()
            assert not second.keeping.configured.is_set()
            await first.aclose()
            await eventually(lambda: second.keeping.configured.is_set())
            assert await _held_by(seed) == "second"


async def test_an_expired_lease_gets_another_holder(lone: Seed) -> None:
    seed, ours = lone, Leading()
    other = Leading()
    async with running(_election(seed, "other").while_leading(other.act)):
        await eventually(lambda: other.now)
    assert await _held_by(seed) == ""

    await _renew(seed, "dead")
    async with running(_election(seed, "ours").while_leading(ours.act)):
        for _ in range(6):  # for longer than the Lease lasts
            await _renew(seed, "dead")
            # The time between renewals is what is tested.
            await asyncio.sleep(0.3)
        assert ours.begun == 0
        await eventually(lambda: ours.now)
        assert await _held_by(seed) == "ours"

        await _renew(seed, "thief")
        await eventually(lambda: not ours.now)
        assert await _held_by(seed) == "thief"
        await eventually(lambda: ours.begun == 2)


async def test_a_slowly_taken_lease_is_renewed_first(plane: ControlPlane, lone: Seed, tmp_path: Path) -> None:
    """Others count from when it was written, which we do not know: perhaps as soon as we had asked."""
    seed, times, begun = lone, Times(lease=3, renewal=1, retry=0.5), list[Mapping[str, Any]]()

    async def act() -> None:
        begun.append((await seed.kube.get(LEASES, NAMESPACE, NAME)).spec)
        await asyncio.Event().wait()

    async with proxy(int(plane.url.rpartition(":")[2])) as between:
        between.hang()
        file = tmp_path / "kubeconfig"
        other_way = f"https://127.0.0.1:{between.port}"
        file.write_text(plane.kubeconfig.read_text().replace(plane.url, other_way))
        async with kube.from_file(file) as slow:
            election = LeaderElection(slow, NAMESPACE, NAME, "ours", times)
            async with running(election.while_leading(act)):
                await eventually(lambda: between.opened > 0)
                # For as long as a leader goes on without a renewal.
                await asyncio.sleep(times.renewal)
                between.resume()
                await eventually(lambda: bool(begun))
                assert begun[0]["renewTime"] > begun[0]["acquireTime"]
