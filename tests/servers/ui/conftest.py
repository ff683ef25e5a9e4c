"""The page, on a bus of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support import pages
from tests.support.pages import World
from tests.support.roles import RoleServer


@pytest_asyncio.fixture
async def world(roles: RoleServer) -> AsyncIterator[World]:
    """The page, and a bus with what other processes would write."""
    async with pages.served(roles) as made:
        yield made
