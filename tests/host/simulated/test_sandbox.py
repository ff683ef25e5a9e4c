"""A whole sandbox with simulated nodes: Pods are scheduled, run and are reached."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from sandbox.simulated.openports import BEHAVIOUR
from tests.host.simulated.world import Sandbox, World, asked, becomes, node_port, outcome
from tests.support.running import eventually
from windowbox.models.refs import DEPLOYMENTS, NODES, PODS

ALL_PODS = PODS._replace(selector="")


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    containers = [{"name": "web", "image": "web:1", "ports": [{"containerPort": 8080}]}]
    spec = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": spec},
    }


async def test_ready_pods_of_a_deployment_are_reached(world: World) -> None:
    found = {node["metadata"]["name"]: node for node in (await world.kube.page(NODES)).items}
    first, second = (
        found[name]["status"]["addresses"][0]["address"] for name in ("simulated-1", "simulated-2")
    )
    service = await world.service({"port": 80}, selector={"app": "web"})
    port = node_port(service)
    assert await outcome(first, port) == "refused"

    await world.kube.create(DEPLOYMENTS, "default", deployment(2))
    await becomes("simulated-1", first, port)
    assert await outcome(second, port) == "simulated-2"
    assert await asked(first, port, b"?") == "refused"

    pods = [pod["metadata"]["name"] for pod in (await world.kube.page(ALL_PODS)).items]
    assert len(pods) == 2
    await output(world, pods, "unready")
    await becomes("refused", first, port)
    await output(world, pods, None)
    await becomes("simulated-1", first, port)

    await output(world, pods[:1], "fail")

    async def replaced() -> bool:
        phases = [pod["status"]["phase"] for pod in (await world.kube.page(ALL_PODS)).items]
        return sorted(phases) == ["Failed", "Running", "Running"]

    await eventually(replaced)
    await world.kube.delete(DEPLOYMENTS, "default", "web")
    await becomes("refused", first, port)


async def output(world: World, pods: list[str], how: str | None) -> None:
    for name in pods:
        await world.kube.merge(ALL_PODS, "default", name, {"metadata": {"annotations": {BEHAVIOUR: how}}})


async def test_a_restarted_simulator_opens_all_ports(sandbox: Sandbox, world: World) -> None:
    address = (await world.kube.page(NODES)).items[0]["status"]["addresses"][0]["address"]
    _, port = await world.served()
    await becomes("simulated-1", address, port)
    await sandbox.kill("node-simulator")
    await becomes("simulated-1", address, port)


@pytest.mark.long  # a restarted simulator lists all; api/watchers/test_watching.py shows gaps of a watch
async def test_deletions_during_a_watch_gap_are_noticed(sandbox: Sandbox, world: World) -> None:
    address = (await world.kube.page(NODES)).items[0]["status"]["addresses"][0]["address"]
    gone, port = await world.served()
    await becomes("simulated-1", address, port)
    _, kept = await world.served()
    await becomes("simulated-1", address, kept)
    sandbox.signal("node-simulator", signal.SIGSTOP)
    await sandbox.kill("kube-apiserver")  # and with it the watch
    await world.drop(gone)
    sandbox.signal("node-simulator", signal.SIGCONT)
    await becomes("refused", address, port)
    assert await outcome(address, kept) == "simulated-1"
    _, port = await world.served()
    await becomes("simulated-1", address, port)
