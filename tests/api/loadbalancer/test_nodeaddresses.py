"""A node whose status names the address of another cluster's node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.api.loadbalancer.manyshoots import ManyShoots, many_shoots
from tests.support import servers
from tests.support.balancerworld import EVENTS, greeting
from tests.support.natsserver import NatsServer
from tests.support.running import eventually
from windowbox.models.refs import NODES
from workers.loadbalancer.edge import nodeadmission


@pytest_asyncio.fixture
async def two(nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ManyShoots]:
    if reason := servers.missing("etcd") or servers.missing("kube-apiserver"):
        pytest.skip(reason)
    with servers.control_plane(tmp_path) as plane:
        monkeypatch.setenv("SSL_CERT_FILE", str(plane.api.ca.certificate))
        async with many_shoots(plane, nats, tmp_path, 2, 1, ranges=[{"prefixes": ["127.70.0.0/24"]}]) as made:
            yield made


async def test_a_node_claiming_a_foreign_address_is_refused(
    two: ManyShoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodeadmission, "_SETTLING", 0.1)
    victim, thief = two.shoots
    async with two.world.worker():
        await two.create(victim)
        await two.create(thief)
        addresses = await two.all_served()
        async with two.api(thief) as api:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stolen"}}
            await api.create(NODES, "", node)
            status = {"addresses": [{"type": "InternalIP", "address": victim.node}]}
            await api.merge(NODES, "", "stolen", {"status": status}, part="status")

            async def told() -> str:
                events = (await api.page(EVENTS)).items
                return next((e["message"] for e in events if e["reason"] == "NodeAddressRefused"), "")

            said = await eventually(told)
        taken = f"{victim.node} is the address of another cluster's node already"
        assert said == f"No traffic is sent to node stolen: {taken}"
        for (shoot, name), ip in addresses.items():
            assert await greeting(ip) == f"{shoot}/{name}"
