"""A provider cluster that does not answer holds up its own objects alone."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.providers.test_errors import infrastructure, server
from tests.support.kindworld import KindWorld
from tests.support.proxy import proxy
from windowbox.models.refs import INFRASTRUCTURES

pytestmark = pytest.mark.serves("infrastructure")

SLOW, NEIGHBOURS = 50, 8


@pytest.mark.parametrize("slow", ["from-the-start", "later"])
async def test_neighbours_of_a_slow_provider_are_served_while_it_hangs(world: KindWorld, slow: str) -> None:
    port = int(world.plane.url.rpartition(":")[2])
    async with proxy(port) as between:
        kubeconfig = server(world, f"https://127.0.0.1:{between.port}")
        hanging = await asyncio.gather(*(world.shoot(kubeconfig=kubeconfig) for _ in range(SLOW)))
        neighbours = await asyncio.gather(*(world.shoot() for _ in range(NEIGHBOURS)))
        if slow == "later":
            first = await world.shoot(kubeconfig=kubeconfig)
            await infrastructure(first)
            await first.until_ready(INFRASTRUCTURES, "local")
        between.hang()
        for shoot in hanging:
            await infrastructure(shoot)
        for shoot in neighbours:
            await infrastructure(shoot)
        for shoot in neighbours:
            await shoot.until_ready(INFRASTRUCTURES, "local")
        states = [await shoot.get(INFRASTRUCTURES, "local") for shoot in hanging]
        assert "Succeeded" not in {found.last_operation.get("state") for found in states if found}
