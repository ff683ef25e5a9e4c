"""The tests of a module share an API server, and start workers of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.dnsworld import dns_world
from tests.support.kindworld import KindWorld
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane, NameServer
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.settings.cloudsettings import CloudSettings
from windowbox.settings.kindsettings import KindSettings


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer, named: NameServer) -> AsyncIterator[KindWorld]:
    """Workers serve DNSRecords of type local and of all clouds."""
    kinds = KindSettings(clouds=CloudSettings(types=CLOUD_TYPES))
    async with dns_world(plane, nats, named, kinds=kinds) as made:
        yield made
