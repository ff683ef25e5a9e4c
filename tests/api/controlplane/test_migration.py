"""A control plane moves from one seed to another, with its authority and without its password."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.api.controlplane import controlplanes
from tests.api.controlplane.controlplanes import SHOOT, WINDOWBOX
from tests.support.kindworld import Client, Seeds, two_seeds
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.objects import Object
from windowbox.models.refs import CONTROL_PLANES, SECRETS

AUTHORITY = "ca-provider-local-controlplane"


@pytest_asyncio.fixture
async def seeds(
    plane: ControlPlane, other: ControlPlane, nats: NatsServer, tmp_path: Path
) -> AsyncIterator[Seeds]:
    async with two_seeds(plane, other, nats, tmp_path, "controlplane") as made:
        yield made


@pytest.mark.long  # host/machines/test_shoot.py moves a Shoot, test_secrets.py takes over its Secrets
@rule("A.13", "O-1", "O-5", "N-2", "F-2", "B.22", "Z-2", "Z-3")
async def test_a_control_plane_moves_with_its_persistent_secrets(seeds: Seeds) -> None:
    old = await controlplanes.ready(seeds.source)
    saved = [
        one for one in (await controlplanes.secrets(old)).values() if one.labels.get("persist") == "true"
    ]
    assert [one.labels["name"] for one in saved] == [AUTHORITY]
    await old.ask(CONTROL_PLANES, "local", "migrate")
    await old.until(CONTROL_PLANES, "local", _handed_over)
    assert await controlplanes.bundles(old) == {}
    assert WINDOWBOX not in await controlplanes.secrets(old)

    new = await controlplanes.shoot_of(seeds.destination, old.namespace)
    await controlplanes.controlplane(new, operation="wait-for-state")
    await _put_back(new, saved)
    await seeds.destination.quiet()
    waiting = await new.get(CONTROL_PLANES, "local")
    assert waiting
    assert "lastOperation" not in waiting.status
    await new.ask(CONTROL_PLANES, "local", "restore")
    restored = await controlplanes.until_ready(new)
    assert restored.last_operation["type"] == "Restore"
    authorities = [
        one for one in (await controlplanes.secrets(new)).values() if one.labels.get("name") == AUTHORITY
    ]
    assert [one.raw["data"] for one in authorities] == [one.raw["data"] for one in saved]
    assert SHOOT in await controlplanes.bundles(new)
    await seeds.destination.quiet()
    later = await new.get(CONTROL_PLANES, "local")
    assert later
    assert later.last_operation == restored.last_operation  # no other run came after it

    # The source may delete what it has handed over: nothing of the destination goes with it.
    await old.delete(CONTROL_PLANES, "local")
    await old.until_gone(CONTROL_PLANES, "local")
    assert SHOOT in await controlplanes.bundles(new)


def _handed_over(found: Object | None) -> bool:
    said = found and found.last_operation.get("description")
    return said == "Successfully migrated ControlPlane" and bool(found and not found.finalizers)


async def _put_back(shoot: Client, saved: list[Object]) -> None:
    """As gardenlet does with what it has saved."""
    for one in saved:
        kept = {key: one.raw[key] for key in ("data", "type", "immutable")}
        body = {"metadata": {"name": one.name, "labels": dict(one.labels)}, **kept}
        await shoot.kube.create(SECRETS, shoot.namespace, body)
