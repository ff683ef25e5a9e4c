"""Envoys for each test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.servers.envoy.world import World
from tests.support import envoyprogram
from workers.loadbalancer.envoy.process import Processes


@pytest_asyncio.fixture
async def bare(tmp_path: Path) -> AsyncIterator[World]:
    """A world whose edges the test starts."""
    async with contextlib.AsyncExitStack() as stack:
        made = World(Processes(tmp_path / "envoys", program=envoyprogram.envoy(tmp_path)), stack)
        stack.push_async_callback(made.end_all)
        yield made


@pytest_asyncio.fixture
async def world(bare: World) -> AsyncIterator[World]:
    """A world with an edge that runs."""
    async with bare.keeping():
        yield bare
