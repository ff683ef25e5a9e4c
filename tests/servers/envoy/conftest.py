"""An edge of the test's own, on addresses of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.servers.envoy.nodes import Node
from tests.servers.envoy.world import World
from tests.support import envoyprogram
from tests.support.running import running, soon
from workers.loadbalancer.envoy.edge import Edge
from workers.loadbalancer.envoy.process import Processes

_numbers = itertools.count(1)


@pytest.fixture
def address() -> Callable[[], str]:
    """Loopback addresses that no other test uses, nor another run of the tests."""

    def new() -> str:
        number = next(_numbers)
        return f"127.{100 + os.getpid() % 100}.{number // 250}.{number % 250 + 1}"

    return new


@pytest.fixture
def attachment(tmp_path: Path) -> Processes:
    """Envoys that outlive their edge, but not the tests."""
    return Processes(tmp_path / "envoys", program=envoyprogram.envoy(tmp_path))


@pytest_asyncio.fixture
async def edge(attachment: Processes) -> AsyncIterator[Edge]:
    one = Edge(attachment)
    try:
        async with running(one.keep()):
            await soon(one.running.wait())
            yield one
    finally:
        await end_all(attachment)


@pytest_asyncio.fixture
async def world(edge: Edge, address: Callable[[], str]) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:

        async def node(name: str, place: str) -> Node:
            one = Node(name, place)
            stack.push_async_callback(one.stop)
            return await one.start()

        yield World(edge, address, node)


async def end_all(attachment: Processes) -> None:
    for envoy in await attachment.found("edge"):
        await envoy.end()
    await asyncio.sleep(0)
