"""The preset for availability on three real nodes: each of three NATS servers in Pods is killed once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.converging import settled
from tests.chaos.load import Load, unsettled
from tests.support import helm, release
from tests.support.release import Release
from windowbox.clients.kubernetes import kube

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SERVERS = [f"windowbox-nats-{number}" for number in range(3)]
RECORDS = 40
PAUSE = 0.1
PATIENCE = 240


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    yield from release.fixture(tmp_path_factory, "ha", release.three_servers, nodes=3)


def test_each_server_has_a_node_and_all_streams(installed: Release) -> None:
    installed.test()
    pods = installed.node.api.read(f"/api/v1/namespaces/{helm.NAMESPACE}/pods")["items"]
    nodes = {one["metadata"]["name"]: one["spec"]["nodeName"] for one in pods}
    assert len({nodes[name] for name in SERVERS}) == 3
    streams = installed.streams("streams=true&config=true")
    found = {one["name"]: one["config"]["num_replicas"] for one in streams}
    assert "OBJECTS" in found
    assert set(found.values()) == {3}


async def test_nothing_is_lost_while_each_server_dies_once(installed: Release) -> None:
    done = asyncio.Event()
    async with kube.from_file(Path(installed.node.kubeconfig)) as api:
        load = Load(api, 7, RECORDS)
        await load.run(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(load.go_on(done, PAUSE))
            for name in SERVERS:
                await asyncio.to_thread(_kill, installed, name)
            done.set()
        problems = await settled(PATIENCE, lambda: unsettled(api, load.wanted))
    assert not problems, "\n".join(problems)
    assert installed.resolved(load.names()) == load.names()


def _kill(installed: Release, name: str) -> None:
    """As if its node had lost power, and come back; returns when the Pod's successor is ready."""
    pod, namespace, node = f"pod/{name}", f"--namespace={helm.NAMESPACE}", installed.node
    uid = node.kubectl("get", pod, namespace, "--output=jsonpath={.metadata.uid}")
    node.kubectl("delete", pod, namespace, "--grace-period=0", "--force", "--wait=false")
    path = f"/api/v1/namespaces/{helm.NAMESPACE}/pods?fieldSelector=metadata.name={name}"
    for event in node.api.events(path, seconds=PATIENCE):
        found = event["object"]
        conditions = found["status"].get("conditions") or []
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        if event["type"] != "DELETED" and found["metadata"]["uid"] != uid and ready:
            return
    raise TimeoutError(f"{name} is not ready again")
