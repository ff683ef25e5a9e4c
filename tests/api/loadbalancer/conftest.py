"""A world of load balancers; tests start the workers."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.balancerworld import BalancerWorld, balancer_world, played_node
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane

PLACE = f"127.66.{os.getpid() % 250}"
"""Loopback addresses that no other run of the tests has."""
NODE_NAME = "ip-10-250-0-17.eu-central-1.compute.internal"
"""As a cloud names it."""
NODE, NODE_PORT = f"{PLACE}.1", 31066


@pytest_asyncio.fixture
async def world(
    request: pytest.FixtureRequest, control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> AsyncIterator[BalancerWorld]:
    """A node that says hello, and addresses and settings as in `@pytest.mark.serves("16/31", quota=1)`."""
    served = request.node.get_closest_marker("serves")
    ranges = [{"prefixes": [f"{PLACE}.{prefix}" for prefix in served.args]}]
    namespace = f"balancers-{uuid.uuid4().hex[:8]}"
    async with (
        balancer_world(control_plane, nats, tmp_path, namespace, ranges=ranges, **served.kwargs) as made,
        played_node(NODE, {NODE_PORT: "hello"}),
    ):
        await made.node(NODE_NAME, NODE)
        yield made
