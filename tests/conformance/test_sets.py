"""MachineDeployments of windowbox and of Gardener's machine-controller-manager, step by step.

Machines change only when a test says so. After each step both controllers have to reach the same state, and
stay there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.kindworld import KindWorld, kind_world
from tests.support.machinecontrollermanager import manager
from tests.support.machines import MachineClient, conditions, deployment, machine_client
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import HEARTBEATS, MACHINE_DEPLOYMENTS

_STAYS = 0.5
"""Seconds for which a state must not change any more: no event shows that a controller is idle."""


@dataclass(frozen=True)
class Both:
    """Clients with the same objects for both controllers."""

    ours: MachineClient
    gardeners: MachineClient

    async def do(self, act: Callable[[MachineClient], Awaitable[Any]]) -> None:
        for one in (self.ours, self.gardeners):
            await act(one)

    async def become(self, joined: int = 0, left: int = 0, **wanted: Any) -> None:
        """Let so many machines join and go; then both must show this state."""
        self.release(joined, left)
        for name, one in (("windowbox", self.ours), ("Gardener's", self.gardeners)):
            await becomes(name, one, **wanted)

    def release(self, joined: int = 0, left: int = 0) -> None:
        """Let so many machines join and go."""
        for one in (self.ours, self.gardeners):
            one.driver.release(joined, left)

    async def stay(self, **wanted: Any) -> None:
        """Both are in this state, and stay in it."""
        await asyncio.sleep(_STAYS)  # no event shows that nothing more happens
        for one in (self.ours, self.gardeners):
            assert await state(one) == {"failed": 0, **wanted}


async def becomes(name: str, client: MachineClient, **wanted: Any) -> None:
    """Wait until a controller shows this state."""
    seen: dict[str, Any] = {}
    wanted = {"failed": 0, **wanted}

    async def look() -> bool:
        seen.update(await state(client))
        return seen == wanted

    try:
        await eventually(look)
    except TimeoutError:
        raise AssertionError(f"{name}: {seen}, but expected was {wanted}") from None


async def state(client: MachineClient) -> dict[str, Any]:
    """Numbers and conditions of the deployment, and numbers of its sets and machines."""
    found = await client.shoot.get(MACHINE_DEPLOYMENTS, "pool")
    machines = Counter((_class(one), _phase(one)) for one in await client.machines())
    return {
        "status": _numbers(found, "replicas", "updatedReplicas", "availableReplicas", "unavailableReplicas"),
        "conditions": conditions(found) if found else {},
        "failed": len(found.status.get("failedMachines") or []) if found else 0,
        "sets": {_class(one): _set(one) for one in await client.sets()},
        "machines": {" ".join(key): count for key, count in sorted(machines.items())},
    }


def _set(found: Object) -> tuple[int, ...]:
    """Wanted, existing, ready and available."""
    return (found.spec.get("replicas", 0), *_numbers(found, "replicas", "readyReplicas", "availableReplicas"))


def _numbers(found: Object | None, *names: str) -> tuple[int, ...]:
    return tuple((found.status.get(name) or 0) if found else 0 for name in names)


def _class(found: Object) -> str:
    spec = found.spec.get("template", {}).get("spec", found.spec)
    return str(spec["class"]["name"])


def _phase(found: Object) -> str:
    return str((found.status.get("currentStatus") or {}).get("phase") or "new")


GOOD = ("True", "MinimumReplicasAvailable")
BAD = ("False", "MinimumReplicasUnavailable")
UPDATED = ("True", "MachineSetUpdated")
COMPLETE = ("True", "NewMachineSetAvailable")


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    async with kind_world(plane, nats, "machinedeployment", "machineset") as made:
        yield made


@pytest_asyncio.fixture
async def both(world: KindWorld, tmp_path: Path) -> AsyncIterator[Both]:
    async with AsyncExitStack() as stack:
        clients = [machine_client(world, nodes=world.kube) for _ in range(2)]
        ours, gardeners = [await stack.enter_async_context(one) for one in clients]
        for one in (ours, gardeners):
            one.driver.hold()
        stack.enter_context(manager(tmp_path, world.plane.kubeconfig, gardeners.shoot.namespace))
        lease = HEARTBEATS._replace(named="")
        await gardeners.shoot.until(lease, "machine-controller-manager", lambda found: found is not None)
        yield Both(ours, gardeners)


async def _complete(both: Both, replicas: int, **spec: Any) -> None:
    await both.do(lambda one: one.make(deployment(replicas=replicas, **spec)))
    await both.become(joined=replicas, **_whole(replicas))


def _whole(replicas: int, of: str = "small") -> dict[str, Any]:
    return {
        "status": (replicas, replicas, replicas, 0),
        "conditions": {"Available": GOOD, "Progressing": COMPLETE},
        "sets": {of: (replicas,) * 4},
        "machines": {f"{of} Running": replicas},
    }


@rule("C7", "C8", "C9", "C6-R2", "C7-R1")
async def test_machines_are_created_and_scaled(both: Both) -> None:
    await both.do(lambda one: one.make(deployment(replicas=3)))
    await both.become(
        status=(3, 3, 0, 3),
        conditions={"Available": BAD, "Progressing": UPDATED},
        sets={"small": (3, 3, 0, 0)},
        machines={"small Pending": 3},
    )
    await both.become(
        joined=1,
        status=(3, 3, 1, 2),
        conditions={"Available": BAD, "Progressing": UPDATED},
        sets={"small": (3, 3, 1, 1)},
        machines={"small Pending": 2, "small Running": 1},
    )
    await both.become(joined=2, **_whole(3))
    await both.do(lambda one: one.scale(5))
    await both.become(
        status=(5, 5, 3, 2),
        conditions={"Available": BAD, "Progressing": COMPLETE},
        sets={"small": (5, 5, 3, 3)},
        machines={"small Pending": 2, "small Running": 3},
    )
    await both.become(joined=2, **_whole(5))
    await both.do(lambda one: one.scale(3))
    await both.become(
        status=(5, 5, 3, 0),
        conditions={"Available": GOOD, "Progressing": COMPLETE},
        sets={"small": (3, 5, 3, 3)},
        machines={"small Running": 3, "small Terminating": 2},
    )
    await both.become(left=2, **_whole(3))
    await both.stay(**_whole(3))


@pytest.mark.long  # unit/machines/test_deployments.py and api/machineset show it without Gardener's own
@rule("C5")
async def test_machines_roll_without_surge(both: Both) -> None:
    await _complete(both, 2, surge=0, unavailable=1)
    await both.do(lambda one: one.roll("big"))
    # Gardener's may create both machines at once here, more than the surge allows: it does not count machines
    # still to be created. It creates the first when the old one is gone, windowbox when it is terminating.
    both.release(left=1)
    await becomes(
        "windowbox",
        both.ours,
        status=(2, 1, 1, 1),
        conditions={"Available": GOOD, "Progressing": UPDATED},
        sets={"small": (1, 1, 1, 1), "big": (1, 1, 0, 0)},
        machines={"big Pending": 1, "small Running": 1},
    )
    await both.become(joined=2, left=1, **_whole(2, "big"))
    await both.stay(**_whole(2, "big"))


@pytest.mark.long  # unit/machines/test_sets.py plans it
@rule("C7-R2", "C8")
async def test_a_failed_machine_is_replaced(both: Both) -> None:
    await _complete(both, 2)
    for one in (both.ours, both.gardeners):
        await one.fail((await one.machines())[0])
    await both.become(
        status=(3, 3, 1, 1),
        conditions={"Available": BAD, "Progressing": COMPLETE},
        sets={"small": (2, 3, 1, 1)},
        machines={"small Pending": 1, "small Running": 1, "small Terminating": 1},
    )
    await both.become(joined=1, left=1, **_whole(2))
    await both.stay(**_whole(2))


@pytest.mark.long  # unit/machines/test_sets.py and test_deployments.py say which machine goes
@rule("C6-R7", "C6-R8")
async def test_the_autoscaler_chooses_the_machine_to_delete(both: Both) -> None:
    await _complete(both, 3)
    left = []
    for one in (both.ours, both.gardeners):
        chosen, *others = await one.machines()
        left.append({other.name for other in others})
        now = "2026-01-01T00:00:00Z"
        annotations = {keys.TRIGGER_DELETION: f"{chosen.name}~{now}", keys.SCALER_TIME: now}
        await one.change({"metadata": {"annotations": annotations}, "spec": {"replicas": 2}})
    # Gardener's own sometimes deletes one more than was chosen, and creates another.
    await both.become(joined=1, left=2, **_whole(2))
    assert {one.name for one in await both.ours.machines()} == left[0]


@pytest.mark.long  # unit/machines/test_deployments.py
@rule("C13-R1")
async def test_a_paused_deployment_does_not_roll(both: Both) -> None:
    await _complete(both, 1)
    await both.do(lambda one: one.change({"spec": {"paused": True}}))
    await both.do(lambda one: one.roll("big"))
    paused = _whole(1) | {
        "status": (1, 0, 1, 0),
        "conditions": {"Available": GOOD, "Progressing": ("Unknown", "DeploymentPaused")},
    }
    await both.become(**paused)
    await both.stay(**paused)


@pytest.mark.long  # unit/machines/test_sets.py freezes one
@rule("C11-R2", "C11-R3", "C11-R6")
async def test_too_many_machines_freeze(both: Both) -> None:
    await _complete(both, 1)
    # Gardener's own checks at intervals, when the surplus may be deleted again.
    async with running(_intrude(both.ours)):
        await both.ours.until_frozen(True)


async def _intrude(client: MachineClient) -> None:
    """Create surplus machines again and again: the set soon deletes them."""
    [owner] = await client.sets()
    for attempt in itertools.count():
        names = [f"intruder-{attempt}-{number}" for number in range(12)]
        await asyncio.gather(*(client.intrude(owner, name) for name in names))


@pytest.mark.long  # api/machineset/test_lease.py with a lease of Gardener's own
@rule("C15-R4")
async def test_one_controller_alone_serves_a_namespace(both: Both, world: KindWorld) -> None:
    client = both.gardeners
    await client.make(deployment(replicas=2))

    async def look() -> bool:
        return "NamespaceServedByOthers" in await client.events()

    async def served() -> bool:
        return len(await client.sets()) == 1 and len(await client.machines()) == 2

    await eventually(look)
    await eventually(served)
    names = {one.metadata.get("generateName") for one in await client.machines()}
    assert all(names)
