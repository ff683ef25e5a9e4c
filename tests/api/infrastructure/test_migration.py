"""A control plane moves from one seed to another. Each seed has an API server and a windowbox of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.api.infrastructure import infrastructures
from tests.api.infrastructure.infrastructures import DENY, behind, says
from tests.support.kindworld import CLOUDPROVIDER, Client, Seeds, two_seeds
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import INFRASTRUCTURES, NAMESPACES, NETWORK_POLICIES

STATE = {"apiVersion": "example.com/v1", "kind": "State", "machines": [{"name": "a", "id": 1}], "empty": {}}


@pytest_asyncio.fixture
async def seeds(
    plane: ControlPlane, other: ControlPlane, nats: NatsServer, tmp_path: Path
) -> AsyncIterator[Seeds]:
    async with two_seeds(plane, other, nats, tmp_path, "infrastructure") as made:
        yield made


async def moved(seeds: Seeds) -> tuple[Client, Client]:
    """A Shoot whose Infrastructure was handed over by the source, and is waited with by the destination."""
    old = await seeds.source.shoot()
    await infrastructures.ready(old)
    await old.merge(INFRASTRUCTURES, "local", {"status": {"state": STATE}}, part="status")
    await old.ask(INFRASTRUCTURES, "local", "migrate")

    def handed_over(found: Object | None) -> bool:
        migrated = says("Succeeded", "Successfully migrated Infrastructure")(found)
        return migrated and found is not None and not found.finalizers and OPERATION not in found.annotations

    left = await old.until(INFRASTRUCTURES, "local", handed_over)
    assert left
    assert left.last_operation["type"] == "Migrate"
    new = await seeds.destination.shoot(old.namespace, kubeconfig=seeds.source.kubeconfig())
    spec = infrastructures.spec(new)
    await new.create(INFRASTRUCTURES, "local", spec, operation="wait-for-state")
    await new.merge(INFRASTRUCTURES, "local", {"status": {"state": left.status["state"]}}, part="status")
    return old, new


@pytest.mark.long  # lifecycle/test_contract_of_kinds.py migrates one
@rule("I-2", "O-1", "O-5", "F-4", "B.22", "B.31")
async def test_a_control_plane_moves_and_its_machines_notice_nothing(seeds: Seeds) -> None:
    old, new = await moved(seeds)
    before = await _place(old)
    audit = seeds.source.audit()
    await seeds.destination.quiet()
    waiting = await new.get(INFRASTRUCTURES, "local")
    assert waiting
    assert "lastOperation" not in waiting.status

    await new.ask(INFRASTRUCTURES, "local", "restore")
    restored = await new.until_ready(INFRASTRUCTURES, "local")
    assert restored.status["state"] == STATE
    assert restored.status["networking"]["nodes"] == ["10.0.0.0/16"]
    assert restored.last_operation["type"] == "Restore"
    assert restored.last_operation["description"] == "Successfully restored Infrastructure"
    await seeds.destination.quiet()
    later = await new.get(INFRASTRUCTURES, "local")
    assert later
    assert later.last_operation == restored.last_operation  # no other run came after it
    await old.delete(INFRASTRUCTURES, "local")
    await old.until_gone(INFRASTRUCTURES, "local")
    await seeds.source.quiet()

    assert await _place(old) == before
    asked = audit.requests()
    touched = ("namespaces", "ippools", "networkpolicies")
    assert sum(asked[f"delete {kind}"] for kind in touched) == 0
    await new.ask(INFRASTRUCTURES, "local")
    reconciled = await new.until_ready(INFRASTRUCTURES, "local")
    assert reconciled.status["state"] == STATE


async def _place(shoot: Client) -> list[tuple[str, str]]:
    """What there is for machines, each with its uid."""
    there = behind(shoot)
    found = [await there.get(kind, name) for kind, name in await infrastructures.made(shoot)]
    return [(one.name, one.uid) for one in found if one]


@pytest.mark.long  # lifecycle/test_contract_of_kinds.py looks between the seeds
@rule("I-2", "O-5", "K-4")
async def test_after_the_move_the_destination_alone_keeps_things_right_and_deletes(seeds: Seeds) -> None:
    old, new = await moved(seeds)
    there = behind(old)
    await seeds.source.quiet()
    await there.delete(NETWORK_POLICIES, DENY)
    await seeds.source.quiet()
    assert await there.get(NETWORK_POLICIES, DENY) is None  # nobody's business in between

    await new.ask(INFRASTRUCTURES, "local", "restore")
    await new.until_ready(INFRASTRUCTURES, "local")
    await there.until(NETWORK_POLICIES, DENY, lambda found: found is not None)
    await there.delete(NETWORK_POLICIES, DENY)
    await there.until(NETWORK_POLICIES, DENY, lambda found: found is not None)

    await old.delete(INFRASTRUCTURES, "local")
    await old.until_gone(INFRASTRUCTURES, "local")
    assert await there.get(NAMESPACES, there.namespace)
    await new.delete(INFRASTRUCTURES, "local")
    await new.until_gone(INFRASTRUCTURES, "local")
    await infrastructures.until_nothing_is_left(old)


async def test_a_migration_needs_no_way_to_the_machines(seeds: Seeds) -> None:
    shoot = await seeds.source.shoot()
    await infrastructures.ready(shoot)
    await shoot.secret(CLOUDPROVIDER, kubeconfig=b"no kubeconfig")
    await shoot.ask(INFRASTRUCTURES, "local", "migrate")
    await shoot.until(INFRASTRUCTURES, "local", says("Succeeded", "Successfully migrated Infrastructure"))
