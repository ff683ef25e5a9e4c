"""The simulator of many clusters, seen through windowbox's own client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.manyclusters import ManyClusters, many_clusters
from tests.support.running import running, soon
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Event, Kube
from windowbox.errors import Unreachable
from windowbox.models.refs import ENDPOINT_SLICES, NAMESPACES, NODES, SERVICES, Resource


@pytest_asyncio.fixture
async def clusters(control_plane: ControlPlane) -> AsyncIterator[ManyClusters]:
    async with many_clusters(control_plane) as simulator:
        yield simulator


@contextlib.asynccontextmanager
async def opened(clusters: ManyClusters, shoot: str, folder: Path) -> AsyncIterator[Kube]:
    """The client of a shoot; what was made through it is removed."""
    await clusters.add(shoot)
    async with kube.from_file(clusters.write_kubeconfig(shoot, folder)) as client:
        yield client
        for resource in (SERVICES, ENDPOINT_SLICES, NODES):
            for item in (await client.page(resource)).items:
                metadata = item["metadata"]
                await client.delete(resource, metadata.get("namespace", ""), metadata["name"])


def web(**metadata: Any) -> dict[str, Any]:
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", **metadata}, "spec": spec}


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


async def names(client: Kube, resource: Resource) -> list[str]:
    return [item["metadata"]["name"] for item in (await client.page(resource)).items]


async def test_two_shoots_have_the_same_names_and_see_only_their_own(
    clusters: ManyClusters, control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with opened(clusters, "shoot-1", tmp_path) as one, opened(clusters, "shoot-11", tmp_path) as two:
        for client in (one, two):
            await client.create(SERVICES, "default", web(labels={"app": "web"}))
            await client.create(NODES, "", node("machine-0"))
        await two.create(NODES, "", node("machine-1"))
        found = await one.get(SERVICES, "default", "web")
        assert (found.namespace, found.name, found.labels) == ("default", "web", {"app": "web"})
        assert await names(one, SERVICES) == ["web"]
        assert await names(one, NODES) == ["machine-0"]
        assert await names(two, NODES) == ["machine-0", "machine-1"]
        assert await names(one, NAMESPACES) == ["default"]
        assert found.uid != (await two.get(SERVICES, "default", "web")).uid
        async with kube.from_file(control_plane.kubeconfig) as real:
            assert (await real.get(SERVICES, "shoot-1-default", "web")).uid == found.uid


async def test_names_within_endpoints_are_the_shoots_own(clusters: ManyClusters, tmp_path: Path) -> None:
    async with opened(clusters, "shoot-2", tmp_path) as client:
        target = {"kind": "Pod", "namespace": "default", "name": "web-0"}
        endpoint = {"addresses": ["10.64.0.1"], "nodeName": "machine-0", "targetRef": target}
        head = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "web-1"}}
        body = {**head, "addressType": "IPv4", "endpoints": [endpoint]}
        await client.create(ENDPOINT_SLICES, "default", body)
        (found,) = (await client.page(ENDPOINT_SLICES)).items
        assert found["endpoints"][0]["nodeName"] == "machine-0"
        assert found["endpoints"][0]["targetRef"] == target


async def test_a_watch_tells_of_the_shoot_alone(clusters: ManyClusters, tmp_path: Path) -> None:
    async with opened(clusters, "shoot-4", tmp_path) as one, opened(clusters, "shoot-5", tmp_path) as two:
        heard: asyncio.Queue[Event] = asyncio.Queue()
        version = (await one.page(SERVICES)).resource_version

        async def watch() -> None:
            async for events in one.watch(SERVICES, version):
                for event in events:
                    heard.put_nowait(event)

        async with running(watch()):
            await two.create(SERVICES, "default", web())
            await one.create(SERVICES, "default", web())
            assert told(await soon(heard.get())) == ("ADDED", "default", "web")
            await one.merge(SERVICES, "default", "web", {"metadata": {"annotations": {"a": "b"}}})
            assert told(await soon(heard.get())) == ("MODIFIED", "default", "web")
            await one.delete(SERVICES, "default", "web")
            assert told(await soon(heard.get())) == ("DELETED", "default", "web")
            assert heard.empty()


async def test_an_unreachable_shoot_is_away_until_repaired(clusters: ManyClusters, tmp_path: Path) -> None:
    async with opened(clusters, "shoot-6", tmp_path) as one, opened(clusters, "shoot-7", tmp_path) as two:
        version = (await one.page(SERVICES)).resource_version

        async def watch() -> None:
            async for _ in one.watch(SERVICES, version):
                pass

        watching = asyncio.create_task(watch())
        await one.create(SERVICES, "default", web())
        clusters.cut("shoot-6")
        with pytest.raises(Unreachable):
            await soon(watching)
        with pytest.raises(Unreachable):
            await one.page(SERVICES)
        assert await names(two, SERVICES) == []
        clusters.repair("shoot-6")
        assert await names(one, SERVICES) == ["web"]


async def test_what_is_no_kind_is_passed_on(clusters: ManyClusters, tmp_path: Path) -> None:
    async with opened(clusters, "shoot-8", tmp_path) as client:
        assert (await client.version()).startswith("v1.")


def told(event: Event) -> tuple[str, str, str]:
    metadata = event.object["metadata"]
    return event.type, metadata["namespace"], metadata["name"]
