"""What a real Gardener needs of real nodes, without one: images from a registry of ours, and no ways out."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from sandbox.nodes import images, nodefiles
from sandbox.nodes.images import Image
from sandbox.servers import ranges
from sandbox.servers.apiserver import is_ready
from tests.support.worldwithnodes import NodeWorld
from tools.gardener import base, traffic
from tools.gardener.registry import Registry, Store
from windowbox.errors import Refused

PODS = "/api/v1/namespaces/default/pods"


@pytest_asyncio.fixture
async def registry(nodes: NodeWorld, tmp_path: Path) -> AsyncIterator[None]:
    """The registry at the address of the nodes' host, which all nodes use: it has one image."""
    [echo] = [image for image in images.images() if image.name == images.ECHO]

    def find(repository: str, tag: str) -> Image | None:
        return echo if (repository, tag) == ("example.org/some/server", "v1") else None

    runner = web.AppRunner(Registry(Store(tmp_path), find).application())
    await runner.setup()
    site = web.TCPSite(runner, str(base.find(nodes.sandbox.folder).host), 0)
    await site.start()
    folders = [nodes.sandbox.folder / "nodes" / node.name for node in nodes.nodes]
    [(host, port)] = runner.addresses
    for folder in folders:
        nodefiles.use_registry(folder, f"http://{host}:{port}")
    yield
    for folder in folders:
        shutil.rmtree(folder / "certs.d" / "_default")
    await runner.cleanup()


async def test_a_node_pulls_an_image_of_any_host_from_the_registry(nodes: NodeWorld, registry: None) -> None:
    # As Gardener's programs are: not root, and at a port below 1024.
    container = {
        "name": "server",
        "image": "example.org/some/server:v1",
        "imagePullPolicy": "Always",
        "args": ["--tcp=443"],
        "readinessProbe": {"tcpSocket": {"port": 443}, "periodSeconds": 1},
        "securityContext": {"runAsUser": 65532, "runAsGroup": 65532},
    }
    await asyncio.to_thread(_run, nodes, container)


def test_packets_stay_with_the_nodes(nodes: NodeWorld) -> None:
    found = base.find(nodes.sandbox.folder)
    assert found.api.url.startswith(f"https://{found.host}:")
    traffic.check(found.state.site, found.plan, found.ranges)


def test_services_without_a_route_are_named(nodes: NodeWorld) -> None:
    found = base.find(nodes.sandbox.folder)
    number = next(n for n in range(9) if traffic.leading(str(_first(n))) != found.state.site)
    with pytest.raises(Refused, match=rf"packets to Services \({_first(number)}\) go to"):
        traffic.check(found.state.site, found.plan, ranges.part(number))


def _first(number: int) -> IPv4Address:
    return ranges.part(number).services_v4[1]


def _run(nodes: NodeWorld, container: dict[str, Any]) -> None:
    """Run a Pod until it is ready."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pulled"}}
    nodes.api.create(PODS, {**pod, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}})
    try:
        for event in nodes.api.events(f"{PODS}?fieldSelector=metadata.name=pulled", seconds=60):
            if is_ready(event["object"]):
                return
        raise AssertionError(event["object"]["status"])
    finally:
        nodes.api.request("DELETE", f"{PODS}/pulled").close()
