"""The inventories of emulated clouds, as tests read and write them on the bus."""

from __future__ import annotations

import base64
import json
from typing import Any

from bus import streams
from bus.transport.buckets import Bucket
from bus.transport.connection import connected
from clouds import table
from clouds.frame import inventory
from clouds.frame.operator.faults import SetFault, encoded
from tests.support import cloudshoots
from tests.support.kindworld import KindWorld
from windowbox.settings.bussettings import Access


async def stored(world: KindWorld, *key: str) -> dict[str, Any] | None:
    """The entry of this key."""
    async with connected(Access(world.nats.url, name="test")) as bus:
        value = (await Bucket(bus, streams.CLOUDS).get(inventory.key(*key))).value
    return None if value is None else json.loads(value)


async def write(world: KindWorld, value: object, *key: str) -> None:
    """Write the entry of this key; None removes it."""
    async with connected(Access(world.nats.url, name="test")) as bus:
        bucket = Bucket(bus, streams.CLOUDS)
        if value is None:
            await bucket.delete(inventory.key(*key), None)
        else:
            await bucket.put(inventory.key(*key), json.dumps(value).encode(), None)


async def add(world: KindWorld, of: str, one: dict[str, Any]) -> None:
    """An object that exists without a Shoot."""
    await write(world, one, "existing", of, one["kind"], one["id"])


async def fail(world: KindWorld, cloud: str, *faults: SetFault) -> None:
    """Set these faults, and no others, for the account of the example."""
    value = encoded(list(faults))
    await write(world, json.loads(value) if value else None, "faults", account(cloud))


def account(cloud: str) -> str:
    """The account of the example's credentials."""
    found = table.cloud(cloud)
    data = {name: base64.b64decode(one) for name, one in cloudshoots.example(cloud)["Secret"]["data"].items()}
    return inventory.account_name(cloud, found.account(data).identity)
