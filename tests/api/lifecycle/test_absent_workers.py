"""Changes that no worker sees: the next one makes up for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.lifecycle.scenes import Servers, standing
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane
from windowbox.models.refs import NAMESPACES, SECRETS


@pytest.mark.parametrize("pool", [pytest.param("infrastructure", marks=pytest.mark.long), "local-ext-shoot"])
async def test_objects_deleted_while_no_worker_ran_are_recreated(
    plane: ControlPlane, nats: NatsServer, tmp_path: Path, pool: str
) -> None:
    servers = Servers(plane, nats, tmp_path)
    async with standing(servers, pool) as stand:
        subject = await stand.subject()
        await subject.create()
        await subject.ready()
        owned = await subject.owned()
    gone = [key for key in owned if key[0] not in (SECRETS, NAMESPACES)]
    assert gone
    for kind, name in gone:
        plane.api.request("DELETE", kind.path(owned[kind, name].namespace, name)).close()
    async with standing(servers, pool) as stand:
        for kind, name in gone:
            client = stand.world.client(owned[kind, name].namespace)
            await client.until(kind, name, lambda found: found is not None)
