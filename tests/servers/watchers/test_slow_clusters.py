"""A cluster that is slow to open holds up no other."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

from bus.clusters.clusters import clusters
from bus.clusters.registry import Member, Registry
from bus.transport.connection import Bus
from sandbox import files
from tests.servers.watchers.conftest import PATIENCE
from tests.support import loopback
from tests.support.apiservers import ApiServers
from tests.support.running import eventually, running
from windowbox.clients.kubernetes import kube
from windowbox.models.refs import RUNTIME, SECRETS, SecretKey

CLUSTERS = {"slow", "fast"}


async def test_a_cluster_is_opened_while_another_is_slow_to(
    bus: Bus, apis: ApiServers, tmp_path: Path
) -> None:
    files.write_private(tmp_path / "runtime", apis.kubeconfig(RUNTIME))
    for name in CLUSTERS:
        data = base64.b64encode(apis.kubeconfig(name).encode()).decode()
        secret = {"metadata": {"namespace": "default", "name": name}, "data": {"kubeconfig": data}}
        apis.put(RUNTIME, SECRETS, secret)
    apis.hanging.add("slow")
    registry = Registry(bus)
    async with (
        kube.from_file(tmp_path / "runtime") as runtime,
        running(registry.run()),
        clusters(runtime, registry, loopback.SETTINGS) as opened,
    ):
        for name in CLUSTERS:
            await registry.join(Member(id=name, secret=SecretKey(namespace="default", name=name)))

        await eventually(lambda: registry.members.keys() >= CLUSTERS, PATIENCE)
        slow = asyncio.create_task(opened.get("slow"))
        while not apis.hung:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # the simulator sends no events
        assert (await opened.get("fast")).host.endswith("/fast")
        assert not slow.done()
        slow.cancel()
        await asyncio.wait([slow])
