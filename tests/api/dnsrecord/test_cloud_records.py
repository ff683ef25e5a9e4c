"""DNSRecords of clouds: their credentials, their hosted zones, and what a name server answers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from bus import streams
from bus.transport.buckets import Bucket
from bus.transport.connection import connected
from clouds import table
from clouds.frame import inventory
from tests.e2e import zones
from tests.support.cloudcredentials import CREDENTIALS, SECRET
from tests.support.kindworld import Client, KindWorld
from tests.support.running import eventually
from tests.support.servers import NameServer
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS
from windowbox.settings.bussettings import Access

AZURE, OPENSTACK = CREDENTIALS["azure"], CREDENTIALS["openstack"]
SECRETS: dict[str, dict[str, bytes]] = {
    "alicloud-dns": {
        "ACCESS_KEY_ID": CREDENTIALS["alicloud"]["accessKeyID"],
        "ACCESS_KEY_SECRET": CREDENTIALS["alicloud"]["accessKeySecret"],
    },
    "aws-route53": {
        "AWS_ACCESS_KEY_ID": CREDENTIALS["aws"]["accessKeyID"],
        "AWS_SECRET_ACCESS_KEY": CREDENTIALS["aws"]["secretAccessKey"],
        "AWS_REGION": b"eu-west-1",
    },
    "azure-dns": {
        "AZURE_SUBSCRIPTION_ID": AZURE["subscriptionID"],
        "AZURE_TENANT_ID": AZURE["tenantID"],
        "AZURE_CLIENT_ID": AZURE["clientID"],
        "AZURE_CLIENT_SECRET": AZURE["clientSecret"],
    },
    "google-clouddns": CREDENTIALS["gcp"],
    "openstack-designate": {
        "OS_AUTH_URL": OPENSTACK["authURL"],
        "OS_DOMAIN_NAME": OPENSTACK["domainName"],
        "OS_PROJECT_NAME": OPENSTACK["tenantName"],
        "OS_APPLICATION_CREDENTIAL_ID": b"an-id",
        "OS_APPLICATION_CREDENTIAL_SECRET": b"unlocks-nothing",
    },
}
ZONES = {
    "alicloud-dns": "local.gardener.cloud:c4f5897609e401f0ada4599d2b53d654",
    "aws-route53": "Z0847DE9287069402086",
    "azure-dns": "dns/local.gardener.cloud",
    "google-clouddns": "my-project/local-gardener-cloud-2d45a",
    "openstack-designate": "dd0b572c-9abb-4542-9f2a-7611f691bc28",
}
"""What `status.zone` has for the zone local.gardener.cloud."""


async def record(client: Client, type_: str, host: str, **spec: Any) -> Object:
    await client.secret(type_, **SECRETS[type_])
    wanted = {
        "type": type_,
        "name": f"{host}.local.gardener.cloud",
        "recordType": "A",
        "values": ["10.0.0.1"],
        "secretRef": {"name": type_, "namespace": client.namespace},
    }
    return await client.create(DNSRECORDS, host, wanted | spec)


async def until_answers(named: NameServer, host: str, values: list[str]) -> None:
    async def look() -> bool:
        return await asyncio.to_thread(zones.answers, named, f"{host}.local.gardener.cloud") == values

    await eventually(look)


async def test_records_of_all_clouds_are_in_the_zone_that_the_cloud_names(
    world: KindWorld, named: NameServer
) -> None:
    client = await world.shoot()
    for host, type_ in enumerate(ZONES):
        await record(client, type_, f"x{host}")
    found = [await client.until_ready(DNSRECORDS, f"x{host}") for host in range(len(ZONES))]
    assert {one.spec["type"]: one.status["zone"] for one in found} == ZONES
    for host, type_ in enumerate(ZONES):
        await until_answers(named, f"x{host}", ["10.0.0.1"])
        await client.ask(DNSRECORDS, f"x{host}", spec={"zone": ZONES[type_], "values": ["10.0.0.2"]})
    found = [await client.until_ready(DNSRECORDS, f"x{host}") for host in range(len(ZONES))]
    assert {one.spec["type"]: one.status["zone"] for one in found} == ZONES
    for host in range(len(ZONES)):
        await until_answers(named, f"x{host}", ["10.0.0.2"])
        await client.delete(DNSRECORDS, f"x{host}")
        await client.until_gone(DNSRECORDS, f"x{host}")
        await until_answers(named, f"x{host}", [])


@pytest.mark.parametrize(
    ("wrong", "code", "says"),
    [
        pytest.param({"zone": "Z0123"}, "ERR_CONFIGURATION_PROBLEM", "'Z0123' is no hosted zone", id="zone"),
        pytest.param(
            {"name": "one.example.org"}, "ERR_CONFIGURATION_PROBLEM", "is in no configured zone", id="no-zone"
        ),
        pytest.param(
            {"secretRef": {"name": "none"}},
            "ERR_INFRA_UNAUTHENTICATED",
            "none does not exist",
            id="absent",
        ),
        pytest.param(
            {"type": "openstack-designate"}, "ERR_INFRA_UNAUTHENTICATED", "domainName is missing", id="secret"
        ),
    ],
)
async def test_a_record_without_zone_or_credentials_fails(
    world: KindWorld, wrong: dict[str, Any], code: str, says: str
) -> None:
    client = await world.shoot()
    await record(client, "aws-route53", "bad", **wrong)
    failed = await client.until_failed(DNSRECORDS, "bad")
    assert failed.status["lastError"]["codes"] == [code]
    assert says in failed.status["lastError"]["description"]
    assert SECRET not in str(failed.raw)


async def test_names_stay_during_a_migration(world: KindWorld, named: NameServer) -> None:
    client = await world.shoot()
    await record(client, "aws-route53", "moves")
    await client.until_ready(DNSRECORDS, "moves")
    await client.ask(DNSRECORDS, "moves", "migrate")
    await client.until_ready(DNSRECORDS, "moves")
    await client.delete(DNSRECORDS, "moves")
    await client.until_gone(DNSRECORDS, "moves")
    await until_answers(named, "moves", ["10.0.0.1"])


async def test_a_record_is_deleted_with_credentials_only(world: KindWorld, named: NameServer) -> None:
    client = await world.shoot()
    await record(client, "aws-route53", "kept")
    await client.until_ready(DNSRECORDS, "kept")
    await client.secret("aws-route53", AWS_ACCESS_KEY_ID=b"short")
    await client.delete(DNSRECORDS, "kept")
    failed = await client.until_failed(DNSRECORDS, "kept")
    assert failed.status["lastError"]["codes"] == ["ERR_INFRA_UNAUTHENTICATED"]
    await until_answers(named, "kept", ["10.0.0.1"])
    await client.secret("aws-route53", **SECRETS["aws-route53"])
    await client.ask(DNSRECORDS, "kept")
    await client.until_gone(DNSRECORDS, "kept")
    await until_answers(named, "kept", [])


async def test_a_throttled_record_is_retried_after_half_a_minute(world: KindWorld) -> None:
    client, since = await world.shoot(), datetime.now(UTC)
    gcp = table.cloud("gcp")
    account = inventory.account_name("gcp", gcp.account(CREDENTIALS["gcp"]).identity)
    async with connected(Access(world.nats.url, name="test")) as bus:
        found = b'{"faults": [{"fault": "throttling", "on": "dns"}]}'
        await Bucket(bus, streams.CLOUDS).put(inventory.key("faults", account), found, None)
    await record(client, "google-clouddns", "late")
    failed = await client.until_failed(DNSRECORDS, "late")
    assert failed.status["lastError"]["codes"] == ["ERR_INFRA_RATE_LIMITS_EXCEEDED"]
    calls = [call for run in (await world.recorded(since, "dnsrecord")).runs for call in run.calls]
    assert [call.error["retry_after"] for call in calls if call.door == "cloud" and call.error] == [30.0]
