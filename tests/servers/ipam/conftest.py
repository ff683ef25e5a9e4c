"""Address stores that may be relied on, of one range for all clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from bus.transport.connection import Bus
from tests.servers.ipam.stores import SMALL, SMALL6, TWO, allocated, settled
from workers.loadbalancer.ipam.store import AddressStore


@pytest_asyncio.fixture
async def store(bus: Bus) -> AsyncIterator[AddressStore]:
    """Sixteen addresses."""
    async with settled(bus, SMALL) as made:
        yield made


@pytest_asyncio.fixture
async def dual(bus: Bus) -> AsyncIterator[AddressStore]:
    """Sixteen addresses of each family."""
    async with settled(bus, SMALL, SMALL6) as made:
        yield made


@pytest_asyncio.fixture
async def two(bus: Bus) -> AsyncIterator[AddressStore]:
    """Two addresses."""
    async with settled(bus, TWO) as made:
        yield made


@pytest_asyncio.fixture
async def full(two: AddressStore) -> AddressStore:
    """Two addresses, which the Services `first` and `second` have."""
    for name in ("first", "second"):
        await allocated(two, name)
    return two
