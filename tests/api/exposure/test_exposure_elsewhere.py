"""Exposures whose machines are in another cluster than the Shoot's control plane."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld, inline
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from tools.bench.audit import WRITES, AuditLog
from windowbox.clients.kubernetes import kube
from windowbox.models.refs import ENDPOINT_SLICES, EXPOSURES, NAMESPACES, SERVICES

pytestmark = pytest.mark.serves("exposure")

VIP = [{"ip": "172.18.255.226", "ipMode": "Proxy"}]


@pytest_asyncio.fixture
async def elsewhere(
    other: ControlPlane, nats: NatsServer, world: KindWorld
) -> AsyncIterator[tuple[Client, Client]]:
    """A Shoot, and where its machines are."""
    client = await world.shoot(kubeconfig=inline(other.kubeconfigs["provider"].read_bytes()))
    async with kube.from_file(other.kubeconfig) as api:
        there = KindWorld(other, nats, api, world.kinds, world.work).client(f"infra-{client.namespace}")
        await api.create(NAMESPACES, "", {"metadata": {"name": there.namespace}})
        yield client, there


@rule("SE-3", "K-3", "K-4")
async def test_what_happens_where_the_machines_are_is_heard_of(
    world: KindWorld, other: ControlPlane, elsewhere: tuple[Client, Client]
) -> None:
    client, there = elsewhere
    secret = {"apiVersion": "v1", "kind": "Secret", "name": CLOUDPROVIDER, "namespace": client.namespace}
    nodes = [{"nodeName": "node-0", "addresses": [{"type": "InternalIP", "address": "10.0.130.5"}]}]
    await client.create(EXPOSURES, "root", {"credentialsRef": secret, "port": 443, "endpoints": nodes})
    await there.until(SERVICES, "exposure-root", lambda found: found is not None)
    balanced = {"status": {"loadBalancer": {"ingress": VIP}}}
    await there.merge(SERVICES, "exposure-root", balanced, part="status")
    found = await client.until_ready(EXPOSURES, "root")
    assert found.status["ingress"] == VIP

    await world.quiet()
    await there.delete(ENDPOINT_SLICES, "exposure-root-ipv4")
    await there.until(ENDPOINT_SLICES, "exposure-root-ipv4", lambda found: found is not None)

    await world.quiet()
    log = AuditLog(other.kubeconfig.parent / "audit.log")
    log.requests()
    await client.ask(EXPOSURES, "root")
    await client.until_ready(EXPOSURES, "root")
    await world.quiet()
    assert [what for what in log.requests() if what.split()[0] in WRITES] == []

    await client.delete(EXPOSURES, "root")
    await client.until_gone(EXPOSURES, "root")
    assert await there.get(SERVICES, "exposure-root") is None
    assert await there.get(ENDPOINT_SLICES, "exposure-root-ipv4") is None
