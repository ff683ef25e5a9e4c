"""SelfHostedShootExposures, from the API to what is made of them. A test simulates the load balancer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from bus import streams, subjects
from bus.transport.connection import connected
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld, inline
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from tools.bench.audit import WRITES, AuditLog
from windowbox.clients.kubernetes import kube
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, EXPOSURES, NAMESPACES, RUNTIME, SERVICES, ObjectRef
from windowbox.settings.bussettings import Access

pytestmark = [pytest.mark.serves("exposure"), pytest.mark.asyncio(loop_scope="module")]

CONTRACT = Path(__file__).parents[4] / "shared" / "contract" / "extensions.md"
NODE = ("InternalIP", "10.0.130.5")
VIP: list[dict[str, Any]] = [{"ip": "172.18.255.226", "ipMode": "Proxy"}]


async def made(world: KindWorld, **shoot: Any) -> tuple[Client, Client]:
    """A Shoot, and the namespace of its machines."""
    client = await world.shoot(**shoot)
    there = world.client(f"infra-{client.namespace}")
    await world.kube.create(NAMESPACES, "", {"metadata": {"name": there.namespace}})
    return client, there


def nodes(*addresses: tuple[str, str]) -> list[dict[str, Any]]:
    spelled = [{"type": kind, "address": address} for kind, address in addresses]
    return [{"nodeName": "machine-0", "addresses": spelled}]


def spec(client: Client, *addresses: tuple[str, str], **fields: Any) -> dict[str, Any]:
    secret = {"apiVersion": "v1", "kind": "Secret", "name": CLOUDPROVIDER, "namespace": client.namespace}
    return {"credentialsRef": secret, "port": 443, "endpoints": nodes(*(addresses or (NODE,)))} | fields


async def expose(client: Client, *addresses: tuple[str, str], **fields: Any) -> None:
    await client.create(EXPOSURES, "root", spec(client, *addresses, **fields))


async def balanced(there: Client, ingress: list[dict[str, Any]] = VIP) -> None:
    """The load balancer says where it answers, and at which ports."""
    await there.until(SERVICES, "exposure-root", lambda found: found is not None)
    with_ports = [{**entry, "ports": [{"port": 443, "protocol": "TCP"}]} for entry in ingress]
    patch = {"status": {"loadBalancer": {"ingress": with_ports}}}
    await there.merge(SERVICES, "exposure-root", patch, part="status")


async def exposed(client: Client, there: Client) -> Object:
    await expose(client)
    await balanced(there)
    return await client.until_ready(EXPOSURES, "root")


def addresses(found: Object | None) -> list[str]:
    endpoints = found.raw["endpoints"] if found else []
    return [endpoint["addresses"][0] for endpoint in endpoints]


def waits(found: Object | None) -> bool:
    return found is not None and "waiting for an address" in found.last_operation.get("description", "")


@rule("SE-1", "SE-2", "SE-3", "SE-4")
async def test_an_exposure_comes_and_goes(world: KindWorld) -> None:
    client, there = await made(world)
    await expose(client)
    waiting = await client.until(EXPOSURES, "root", waits)
    assert waiting
    assert waiting.last_operation["state"] == "Processing"
    await balanced(there)
    found = await client.until_ready(EXPOSURES, "root")
    assert found.status["ingress"] == VIP

    service = await there.get(SERVICES, "exposure-root")
    assert service
    assert "selector" not in service.spec
    assert (service.spec["type"], service.spec["ipFamilyPolicy"]) == ("LoadBalancer", "PreferDualStack")
    port = {key: service.spec["ports"][0][key] for key in ("name", "port", "targetPort", "protocol")}
    assert port == {"name": "https", "port": 443, "targetPort": 443, "protocol": "TCP"}

    slice = await there.get(ENDPOINT_SLICES, "exposure-root-ipv4")
    assert slice
    assert slice.labels == {"kubernetes.io/service-name": "exposure-root"}
    assert slice.raw["addressType"] == "IPv4"
    assert slice.raw["endpoints"] == [{"addresses": ["10.0.130.5"], "conditions": {"ready": True}}]
    assert slice.raw["ports"] == [{"name": "https", "port": 443, "protocol": "TCP"}]

    await client.delete(EXPOSURES, "root")
    await client.until_gone(EXPOSURES, "root")
    assert await there.get(SERVICES, "exposure-root") is None
    assert await there.get(ENDPOINT_SLICES, "exposure-root-ipv4") is None


async def test_nothing_is_scheduled_once_a_wait_is_over(world: KindWorld) -> None:
    client, there = await made(world)
    subject = subjects.later(
        "exposure", subjects.key(ObjectRef(RUNTIME, EXPOSURES.id, client.namespace, "root"))
    )
    async with connected(Access(world.nats.url, name="test")) as bus:
        await expose(client)
        await client.until(EXPOSURES, "root", waits)
        await world.quiet()
        assert await bus.last(streams.LATER, subject)
        await balanced(there)
        await client.until_ready(EXPOSURES, "root")
        await world.quiet()
        assert not await bus.last(streams.LATER, subject)


@rule("SE-4")
async def test_slices_stay_until_the_load_balancer_has_gone(world: KindWorld) -> None:
    client, there = await made(world)
    await exposed(client, there)
    held = {"metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}}
    await there.merge(SERVICES, "exposure-root", held)
    await client.delete(EXPOSURES, "root")

    def waiting(found: Object | None) -> bool:
        return found is not None and "waiting for Service" in found.last_operation["description"]

    await client.until(EXPOSURES, "root", waiting)
    assert await there.get(ENDPOINT_SLICES, "exposure-root-ipv4")
    await there.merge(SERVICES, "exposure-root", {"metadata": {"finalizers": None}})
    await client.until_gone(EXPOSURES, "root")
    assert await there.get(ENDPOINT_SLICES, "exposure-root-ipv4") is None


@rule("SE-5", "C-2", "C-9")
async def test_an_exposure_of_a_self_hosted_shoot_lives_in_kube_system(world: KindWorld) -> None:
    name = "shoot--t--exposes-itself"
    provider = {"workers": [{"name": "cp", "controlPlane": {}}]}
    client = await world.shoot("kube-system", spec={"provider": provider}, status={"technicalID": name})
    there = world.client(f"infra-{name}")
    await world.kube.create(NAMESPACES, "", {"metadata": {"name": there.namespace}})
    await exposed(client, there)
    await client.delete(EXPOSURES, "root")
    await client.until_gone(EXPOSURES, "root")
    assert await there.get(SERVICES, "exposure-root") is None


@rule("A.8")
async def test_the_example_has_the_status_of_the_contract(world: KindWorld) -> None:
    if not CONTRACT.exists():
        pytest.skip("the contract is not beside this repository")
    text = CONTRACT.read_text().split("\n## A.8 ", 1)[1].split("```yaml\n", 1)[1].split("```", 1)[0]
    example, wanted = yaml.safe_load_all(text)
    name = "shoot--garden--root"
    client = await world.shoot("kube-system", status={"technicalID": name})
    there = world.client(f"infra-{name}")
    await world.kube.create(NAMESPACES, "", {"metadata": {"name": there.namespace}})
    example["metadata"]["annotations"]["gardener.cloud/timestamp"] = "2026-09-01T10:15:30.123456789Z"
    await world.kube.create(EXPOSURES, "kube-system", example)
    await balanced(there)
    found = await client.until_ready(EXPOSURES, "root")
    assert found.spec == example["spec"]
    assert _timeless(found.status) == _timeless(wanted["status"])
    for field in ("name", "namespace", "generation", "finalizers", "annotations"):
        assert found.metadata[field] == wanted["metadata"][field]
    assert addresses(await there.get(ENDPOINT_SLICES, "exposure-root-ipv4")) == ["10.0.130.5"]
    await client.delete(EXPOSURES, "root")
    await client.until_gone(EXPOSURES, "root")


def _timeless(status: Any) -> dict[str, Any]:
    last = {k: v for k, v in status["lastOperation"].items() if k != "lastUpdateTime"}
    return {**status, "lastOperation": last}


async def test_a_later_address_of_the_load_balancer_is_reported(world: KindWorld) -> None:
    client, there = await made(world)
    await exposed(client, there)
    later = [{"ip": "172.18.255.230", "ipMode": "Proxy"}, {"hostname": "lb.example.org"}]
    await balanced(there, later)
    found = await client.until(EXPOSURES, "root", lambda one: bool(one and one.status["ingress"] == later))
    assert found
    assert found.last_operation["state"] == "Succeeded"


@rule("D-8")
async def test_an_address_that_is_lost_stays_reported(world: KindWorld) -> None:
    client, there = await made(world)
    await exposed(client, there)
    await there.merge(SERVICES, "exposure-root", {"status": {"loadBalancer": None}}, part="status")
    await client.ask(EXPOSURES, "root")
    waiting = await client.until(EXPOSURES, "root", waits)
    assert waiting
    assert waiting.status["ingress"] == VIP
    assert not waiting.status.get("lastError")


async def test_endpoints_that_change_are_followed(world: KindWorld) -> None:
    client, there = await made(world)
    await exposed(client, there)
    moved = nodes(("InternalIP", "10.0.130.6"), ("InternalIP", "10.0.130.7"))
    await client.ask(EXPOSURES, "root", spec={"endpoints": moved, "port": 6443})
    await there.until(
        ENDPOINT_SLICES, "exposure-root-ipv4", lambda one: addresses(one) == ["10.0.130.6", "10.0.130.7"]
    )
    await client.until_ready(EXPOSURES, "root")
    service = await there.get(SERVICES, "exposure-root")
    assert service
    assert [p["targetPort"] for p in service.spec["ports"]] == [6443]


async def test_a_family_that_the_shoot_gives_up_loses_its_slice(world: KindWorld) -> None:
    both = {"networking": {"ipFamilies": ["IPv4", "IPv6"], "nodes": "10.0.0.0/16"}}
    client, there = await made(world, spec=both)
    await expose(client, NODE, ("InternalIP", "fd00::5"))
    await balanced(there)
    await client.until_ready(EXPOSURES, "root")
    assert addresses(await there.get(ENDPOINT_SLICES, "exposure-root-ipv6")) == ["fd00::5"]
    await client.cluster()
    await world.quiet()
    await client.ask(EXPOSURES, "root")
    await there.until(ENDPOINT_SLICES, "exposure-root-ipv6", lambda found: found is None)
    assert await there.get(ENDPOINT_SLICES, "exposure-root-ipv4")


@rule("B.6", "C-8")
async def test_a_forced_deletion_cleans_up_without_waiting(world: KindWorld) -> None:
    client, there = await made(world)
    await exposed(client, there)
    held = {"metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}}
    await there.merge(SERVICES, "exposure-root", held)
    await client.cluster(metadata={"annotations": {"confirmation.gardener.cloud/force-deletion": "true"}})
    await world.quiet()
    await client.delete(EXPOSURES, "root")
    await client.until_gone(EXPOSURES, "root")
    service = await there.get(SERVICES, "exposure-root")
    assert service
    assert service.deleting
    assert await there.get(ENDPOINT_SLICES, "exposure-root-ipv4") is None
    await there.merge(SERVICES, "exposure-root", {"metadata": {"finalizers": None}})


@pytest_asyncio.fixture(loop_scope="module")
async def elsewhere(other: ControlPlane, world: KindWorld) -> AsyncIterator[tuple[Client, Client]]:
    """A Shoot, and the namespace of its machines in another cluster."""
    client = await world.shoot(kubeconfig=inline(other.kubeconfigs["provider"].read_bytes()))
    async with kube.from_file(other.kubeconfig) as api:
        there = KindWorld(other, world.nats, api, world.kinds, world.work).client(f"infra-{client.namespace}")
        await api.create(NAMESPACES, "", {"metadata": {"name": there.namespace}})
        yield client, there


@pytest.mark.long  # providers/test_membership.py watches another cluster
@rule("SE-3", "K-3", "K-4")
async def test_objects_in_another_cluster_are_watched(
    world: KindWorld, other: ControlPlane, elsewhere: tuple[Client, Client]
) -> None:
    client, there = elsewhere
    await expose(client)
    await balanced(there)
    found = await client.until_ready(EXPOSURES, "root")
    assert found.status["ingress"] == VIP

    await world.quiet()
    await there.delete(ENDPOINT_SLICES, "exposure-root-ipv4")
    await there.until(ENDPOINT_SLICES, "exposure-root-ipv4", lambda found: found is not None)

    await world.quiet()
    log = AuditLog(other.kubeconfig.parent / "audit.log")
    log.skip()
    await client.ask(EXPOSURES, "root")
    await client.until_ready(EXPOSURES, "root")
    await world.quiet()
    assert [what for what in log.requests() if what.split()[0] in WRITES] == []

    await client.delete(EXPOSURES, "root")
    await client.until_gone(EXPOSURES, "root")
    assert await there.get(SERVICES, "exposure-root") is None
    assert await there.get(ENDPOINT_SLICES, "exposure-root-ipv4") is None
