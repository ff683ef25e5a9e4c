"""Load balancers as clients see them in six clouds: a real Envoy and name server, a Shoot of each type."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from bus import streams
from bus.transport.buckets import Bucket
from clouds.frame import inventory
from sandbox.servers import zoneserver
from tests.api.loadbalancer.manyshoots import ManyShoots, Shoot, many_shoots
from tests.host.traffic import addresses
from tests.support import servers
from tests.support.balancerworld import EVENTS
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes.kube import Kube
from windowbox.clients.nameserver import Nameserver
from windowbox.models.recordsets import RecordKey, RecordType
from windowbox.models.refs import CLUSTERS, SERVICES
from windowbox.settings.dnssettings import DnsSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIRST_PORT, HELLO = 31200, b"hello"
CLOUDS = ("alicloud", "aws", "azure", "equinixmetal", "gcp", "openstack")
ZONE = "amazonaws.com"
PUBLIC, INTERNAL, GOLD = "127.70.4.", "127.70.5.", "127.70.6."
OUTSIDE = "127.9.9.9"
AWS = "service.beta.kubernetes.io/aws-load-balancer-"
AZURE = "service.beta.kubernetes.io/azure-load-balancer-"
ALI, OPENSTACK = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-", "loadbalancer.openstack.org/"
NLB = {"loadBalancerClass": "service.k8s.aws/nlb"}
FACING = {f"{AWS}scheme": "internet-facing"}


class Row(NamedTuple):
    """A Service of a cloud, and what a client sees."""

    id: str
    cloud: str
    annotations: dict[str, str] = {}  # noqa: RUF012
    spec: dict[str, Any] = {}  # noqa: RUF012
    range: str = PUBLIC
    named: bool = False
    """Its status shows a host name that resolves, and no address."""
    outside: bool = True
    """Clients outside the networks of nodes and Pods are served."""
    node: bool = True
    """Its only node reaches itself."""
    header: str = ""
    """Of the PROXY protocol: `v1` or `v2`."""


ROWS = (
    Row("aws-usual", "aws", named=True),
    Row("aws-internal", "aws", {f"{AWS}internal": "true"}, range=INTERNAL, named=True, outside=False),
    Row("aws-proxy-protocol", "aws", {f"{AWS}proxy-protocol": "*"}, named=True, header="v1"),
    Row("AWS-X4", "aws", FACING, NLB, named=True),
    Row("AWS-X1", "aws", {**FACING, f"{AWS}proxy-protocol": "*"}, NLB, named=True, header="v2"),
    Row("AWS-X5", "aws", {}, NLB, range=INTERNAL, named=True, outside=False, node=False),
    Row(
        "AWS-X5-preserve-off",
        "aws",
        {f"{AWS}target-group-attributes": "preserve_client_ip.enabled=false"},
        NLB,
        range=INTERNAL,
        named=True,
        outside=False,
    ),
    Row("azure-usual", "azure"),
    Row("azure-internal", "azure", {f"{AZURE}internal": "true"}, range=INTERNAL, outside=False),
    Row("gcp-usual", "gcp"),
    Row(
        "gcp-internal",
        "gcp",
        {"networking.gke.io/load-balancer-type": "Internal"},
        range=INTERNAL,
        outside=False,
    ),
    Row("OST-C7", "openstack", range=GOLD),
    Row("OST-C2", "openstack", {f"{OPENSTACK}class": "plain"}),
    Row(
        "openstack-internal",
        "openstack",
        {"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"},
        range=INTERNAL,
        outside=False,
    ),
    Row("openstack-proxy", "openstack", {f"{OPENSTACK}proxy-protocol": "v2"}, range=GOLD, header="v2"),
    Row("alicloud-usual", "alicloud"),
    Row("alicloud-intranet", "alicloud", {f"{ALI}address-type": "intranet"}, range=INTERNAL, outside=False),
    Row("alicloud-proxy", "alicloud", {f"{ALI}proxy-protocol": "on"}, header="v2"),
    Row("equinixmetal-usual", "equinixmetal"),
)
"""All are served by one world."""


@dataclass
class CloudWorld:
    """The Shoots by cloud, with the Services of the rows."""

    many: ManyShoots
    nameserver: Nameserver
    shoots: dict[str, Shoot]

    def api(self, cloud: str) -> AbstractAsyncContextManager[Kube]:
        return self.many.api(self.shoots[cloud])

    def client(self, cloud: str) -> str:
        """A client in the network of its nodes, that is none."""
        return f"{self.shoots[cloud].node}77"

    async def create(self, cloud: str, name: str, node_port: int, annotations: Any, spec: Any) -> None:
        ports = [{"port": 80, "nodePort": node_port, "targetPort": 8080}]
        metadata = {"name": name, "annotations": annotations}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
        async with self.api(cloud) as api:
            body["spec"] = {"type": "LoadBalancer", "ports": ports, **spec}
            await api.create(SERVICES, "default", body)

    async def until(self, cloud: str, name: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first entry of a Service's status, once it is like this."""
        async with self.api(cloud) as api:

            async def look() -> dict[str, Any] | None:
                found = await api.get(SERVICES, "default", name)
                entries = found.status.get("loadBalancer", {}).get("ingress") or [{}]
                return dict(entries[0]) if holds(entries[0]) else None

            found = await eventually(look, 60)
        assert found
        return found

    async def resolved(self, name: str, type_: RecordType = "A") -> tuple[str, ...]:
        found = await self.nameserver.read(ZONE, RecordKey(name, type_))
        return found.values if found else ()

    async def gone(self, cloud: str, name: str) -> bool:
        async with self.api(cloud) as api:
            return await api.find(SERVICES, "default", name) is None

    async def said(self, cloud: str, name: str, reason: str) -> str:
        """The Event of this reason about a Service."""

        async def look() -> str:
            async with self.api(cloud) as api:
                events = (await api.page(EVENTS, namespace="default")).items
            about = (one for one in events if one["involvedObject"]["name"] == name)
            return next((one["message"] for one in about if one["reason"] == reason), "")

        return await eventually(look)

    async def address(self, row: Row) -> str:
        """The address that a client of the row finds."""
        entry = await self.until(row.cloud, row.id.lower(), lambda one: "hostname" in one or "ip" in one)
        assert ("hostname" in entry, "ip" in entry) == (row.named, not row.named)
        if not row.named:
            return str(entry["ip"])
        [found] = await self.resolved(entry["hostname"])
        return found


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    servers.need("etcd", "kube-apiserver", "nats-server", "named")
    with servers.control_plane(tmp_path_factory.mktemp("behind")) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(behind: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CloudWorld]:
    """A Shoot of each cloud whose node sends back what it got, with the Services of all rows."""
    folder = tmp_path_factory.mktemp("clouds")
    async with contextlib.AsyncExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        named = stack.enter_context(
            servers.name_server(folder / "named", key=zoneserver.new_key(), zone=ZONE)
        )
        nats = NatsServer(folder / "nats")
        nats.start()
        stack.callback(nats.stop)
        _, v6, _ = addresses.free()
        stack.enter_context(addresses.removed_at_the_end(v6))
        internal, gold = (
            {"prefixes": [f"{prefix}0/24"], "name": name}
            for prefix, name in ((INTERNAL, "internal"), (GOLD, "gold"))
        )
        usual = [f"{PUBLIC}0/24", v6]
        shoots = many_shoots(
            behind, nats, folder, patch, len(CLOUDS), 0, usual, internal, gold, numbers=itertools.count(200)
        )
        many = await stack.enter_async_context(shoots)
        assert named.key
        zone = {"name": ZONE, "servers": [named.address], "key": named.key.settings()}
        many.world.dns = DnsSettings.model_validate({"zones": [zone]})
        nameserver = Nameserver(many.world.dns)
        stack.push_async_callback(nameserver.aclose)
        made = CloudWorld(many, nameserver, dict(zip(CLOUDS, many.shoots, strict=True)))
        await stack.enter_async_context(many.world.worker())
        for cloud, shoot in made.shoots.items():
            await _declare(many, cloud, shoot)
            await many.create(shoot)
        for number, row in enumerate(ROWS):
            node = made.shoots[row.cloud].node
            server = await asyncio.start_server(_send_back, node, FIRST_PORT + number)
            stack.callback(server.close)
            await made.create(row.cloud, row.id.lower(), FIRST_PORT + number, row.annotations, row.spec)
        yield made


async def _declare(many: ManyShoots, cloud: str, shoot: Shoot) -> None:
    """Create the Cluster of a Shoot of this cloud."""
    classes = [{"name": "plain"}, {"name": "gold", "purpose": "default"}]
    provider = {"type": cloud, "controlPlaneConfig": {"loadBalancerClasses": classes}}
    networking = {"nodes": f"{shoot.node.rpartition('.')[0]}.0/24"}
    spec = {"region": "eu-central-1", "provider": provider, "networking": networking}
    shown = {"kind": "Shoot", "spec": spec, "status": {"technicalID": shoot.name}}
    about = {"cloudProfile": {"kind": "CloudProfile"}, "seed": {"kind": "Seed"}, "shoot": shown}
    head = {"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Cluster"}
    body = {**head, "metadata": {"name": shoot.name}, "spec": about}
    await many.world.kube.apply(CLUSTERS, "", shoot.name, body, owner="gardenlet")


async def _send_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        writer.write(await reader.readuntil(HELLO))
        await writer.drain()
    writer.close()


async def heard(address: str, source: str) -> bytes:
    """What the backend of a load balancer gets from this client; empty if that is refused."""
    with contextlib.suppress(OSError):
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection(address, 80, local_addr=(source, 0))
            writer.write(HELLO)
            found = await reader.read(-1)
            writer.close()
            return found
    return b""


def header(version: str, client: str) -> bytes:
    """The beginning of a PROXY header."""
    if version == "v1":
        return f"PROXY TCP4 {client} ".encode()
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + socket.inet_aton(client) if version else b""


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ROWS])
async def test_what_a_client_sees(world: CloudWorld, row: Row) -> None:
    address, inside = await world.address(row), world.client(row.cloud)
    assert address.startswith(row.range)

    said = await heard(address, inside)
    assert said.startswith(header(row.header, inside))
    assert said.endswith(HELLO)
    assert (said == HELLO) == (not row.header)

    assert (await heard(address, OUTSIDE) != b"") == row.outside
    assert (await heard(address, world.shoots[row.cloud].node) != b"") == row.node


@pytest.mark.skipif(os.geteuid() != 0, reason="IPv6 addresses are put on lo, which is for root")
@rule("AWS-X1", "AWS-X2")
async def test_dual_stack_is_another_load_balancer_before_the_same_backends(world: CloudWorld) -> None:
    node = world.shoots["aws"].node
    server = await asyncio.start_server(_send_back, node, FIRST_PORT - 1)
    await world.create("aws", "dual", FIRST_PORT - 1, FACING, NLB)
    before = (await world.until("aws", "dual", lambda one: "hostname" in one))["hostname"]
    [v4] = await world.resolved(before)
    assert await world.resolved(before, "AAAA") == ()

    async with world.api("aws") as api:
        dual = {"metadata": {"annotations": {f"{AWS}ip-address-type": "dualstack"}}}
        await api.merge(SERVICES, "default", "dual", dual)
    after = (await world.until("aws", "dual", lambda one: one.get("hostname") != before))["hostname"]
    assert await world.resolved(after) == (v4,)
    [v6] = await world.resolved(after, "AAAA")
    # The node has no IPv6 address. And the old load balancer stays behind.
    assert await heard(v6, v6) == HELLO
    assert await world.resolved(before) == (v4,)

    # A record deleted by hand comes back with the next change.
    await world.nameserver.delete(ZONE, RecordKey(after, "A"))
    async with world.api("aws") as api:
        await api.merge(SERVICES, "default", "dual", {"metadata": {"annotations": {"any": "change"}}})

    async def back() -> bool:
        return await world.resolved(after) == (v4,)

    await eventually(back)

    async with world.api("aws") as api:
        await api.delete(SERVICES, "default", "dual")
        await eventually(lambda: world.gone("aws", "dual"))
    assert [await world.resolved(name) for name in (before, after)] == [(), ()]
    server.close()


async def test_a_fault_of_the_cloud_is_said_and_ends(world: CloudWorld) -> None:
    bucket, account = Bucket(world.many.bus, streams.CLOUDS), "azure-012345678901"
    faults = [{"fault": "quota", "on": "balancers"}]
    of_shoot = inventory.key("shoots", world.shoots["azure"].name)
    await bucket.put(of_shoot, json.dumps({"account": account}).encode(), None)
    await bucket.put(inventory.key("faults", account), json.dumps({"faults": faults}).encode(), None)
    await world.create("azure", "faulty", FIRST_PORT - 3, {}, {})
    assert "QuotaExceeded: " in await world.said("azure", "faulty", "SyncLoadBalancerFailed")
    await bucket.delete(inventory.key("faults", account), None)
    await world.until("azure", "faulty", lambda one: "ip" in one)


@rule("AWS-X4")
async def test_what_is_not_supported_is_not_served_and_said(world: CloudWorld) -> None:
    await world.create("aws", "by-ip", FIRST_PORT - 2, {**FACING, f"{AWS}nlb-target-type": "ip"}, NLB)
    said = await world.said("aws", "by-ip", "CloudOptionNotSupported")
    assert 'nlb-target-type is "ip": give instance' in said


async def test_when_the_bus_forgets_everything_names_stay(world: CloudWorld) -> None:
    """The last test of this world. A status with a name shows no address."""
    [row] = [row for row in ROWS if row.id == "AWS-X5"]
    name = (await world.until("aws", row.id.lower(), lambda one: "hostname" in one))["hostname"]
    before = await world.resolved(name)
    [parts] = world.many.world.parts
    world.many.world.nats.wipe()
    world.many.world.nats.start()

    async def restored() -> bool:
        held = {where for where, _ in parts.store.holders()}
        return parts.store.is_complete() and {*before} <= held

    await eventually(restored, 60)
    # It is served as before, and its next change finds the name.
    async with world.api("aws") as api:
        await api.merge(SERVICES, "default", row.id.lower(), {"metadata": {"annotations": {"any": "change"}}})
    await world.create("aws", "later", FIRST_PORT - 4, {}, NLB)
    await world.until("aws", "later", lambda one: "hostname" in one)
    assert (await world.until("aws", row.id.lower(), bool))["hostname"] == name
    assert await world.resolved(name) == before
    assert await heard(before[0], world.client("aws")) == HELLO
