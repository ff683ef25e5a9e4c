"""`windowbox cloud` on a real bus."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from bus import streams
from bus.transport.buckets import Bucket
from bus.transport.connection import connected
from clouds.frame import inventory
from clouds.frame.inventory import CloudObject
from clouds.frame.operator.faults import SetFault
from commands.clouds import inventories
from tests.api.commands.operated import CommandLine
from tests.support import cloudshoots
from tests.support.cases import cases
from windowbox.settings.bussettings import Access

ACCOUNT, OTHER, SHOOT = "aws-012345678901", "gcp-012345678901", "shoot--garden--one"
ALICLOUD, OPENSTACK = "alicloud-012345678901", "openstack-012345678901"
VPC = CloudObject("vpc", "vpc-0123", "one", {"cidr": "10.0.0.0/16"})


@pytest.fixture
def bus(nats_url: str, alone: CommandLine) -> str:
    """The address of a bus with its streams, and one Shoot in the inventory."""

    async def prepare() -> None:
        async with connected(Access(nats_url, name="test")) as bus:
            await streams.ensure(bus)

    asyncio.run(prepare())
    entry = {"account": ACCOUNT, "objects": inventory.encoded([VPC]), "uses": []}
    write(nats_url, {inventory.key("shoots", SHOOT): entry})
    return nats_url


def write(url: str, entries: dict[str, Any]) -> None:
    async def put() -> None:
        async with connected(Access(url, name="test")) as bus:
            bucket = Bucket(bus, streams.CLOUDS)
            await asyncio.gather(
                *(bucket.put(key, json.dumps(one).encode(), None) for key, one in entries.items())
            )

    asyncio.run(put())


def ask(alone: CommandLine, *arguments: str, expect: int = 0) -> str:
    answer = alone.here("cloud", *arguments)
    assert answer.exit_code == expect, answer.output
    return answer.output


def asked(alone: CommandLine, *arguments: str) -> Any:
    return json.loads(ask(alone, *arguments))


def test_an_added_object_is_listed_shown_changed_and_removed(alone: CommandLine, bus: str) -> None:
    place = (ACCOUNT, "elastic-ip", "eipalloc-1")
    assert "exists in" in ask(alone, "add", *place, "--set", "address=203.0.113.7")
    ask(alone, "add", *place, "--set", "address=203.0.113.8", "--shared")

    [shown] = [one for one in asked(alone, "list", ACCOUNT, "-o", "json") if not one["shoot"]]
    assert shown == asked(alone, "show", "elastic-ip", "eipalloc-1")
    assert (shown["properties"], shown["shared"]) == ({"address": "203.0.113.8"}, True)
    summary = ask(alone, "list")
    assert f"{ACCOUNT}: 1 existing object\n  {SHOOT}: 1 object\n" in summary

    ask(alone, "remove", *place)
    assert "no existing elastic-ip 'eipalloc-1'" in ask(alone, "remove", *place, expect=3)
    assert [one["id"] for one in asked(alone, "show", SHOOT)] == ["vpc-0123"]


def test_what_a_shoot_owns_is_for_others_only_if_it_is_shared(alone: CommandLine, bus: str) -> None:
    said = ask(alone, "add", ACCOUNT, "vpc", "vpc-0123", expect=1)
    assert f"belongs to Shoot {SHOOT}: with --shared other Shoots may name it" in said
    ask(alone, "add", ACCOUNT, "vpc", "vpc-0123", "--shared")


def test_what_a_shoot_uses_alone_is_kept(alone: CommandLine, bus: str) -> None:
    one = CloudObject("elastic-ip", "eipalloc-1", used_by=SHOOT)
    write(bus, {inventory.key("existing", ACCOUNT, one.kind, one.id): inventory.encoded([one])[0]})
    assert f"is used by {SHOOT}" in ask(alone, "remove", ACCOUNT, one.kind, one.id, expect=1)
    ask(alone, "add", ACCOUNT, one.kind, one.id, "--set", "address=203.0.113.7")
    assert asked(alone, "show", one.kind, one.id)["usedBy"] == SHOOT


@cases(
    "arguments code said",
    ("unknown-account", ("add", "moon-012345678901", "vpc", "a"), 1, "is no account"),
    ("number-of-account", ("add", "aws-1", "vpc", "a"), 1, "is no account"),
    ("wildcard-account", ("fail", "aws-*", "quota"), 1, "is no account"),
    ("unknown-kind", ("add", ACCOUNT, "moon", "a"), 1, "known are elastic-ip, "),
    ("unknown-property", ("add", ACCOUNT, "vpc", "a", "--set", "size=1"), 1, "it has cidr, domainName, "),
    ("no-properties", ("add", OTHER, "vpc", "a", "--set", "size=1"), 1, "it has none"),
    ("no-equals-sign", ("add", ACCOUNT, "vpc", "a", "--set", "cidr"), 1, "write NAME=VALUE"),
    ("bad-range", ("add", ACCOUNT, "vpc", "a", "--set", "cidr=10.0.0.1/16"), 1, "has to be a range such as"),
    ("bad-truth", ("add", ACCOUNT, "vpc", "a", "--set", "internetGateway=yes"), 1, "true or false"),
    ("bad-address", ("add", ACCOUNT, "elastic-ip", "a", "--set", "address=moon"), 1, "an address such as"),
    ("bad-names", ("add", ALICLOUD, "natgw-zones", "a", "--set", "zones=a, b"), 1, "names with commas"),
    ("bad-addresses", ("add", OPENSTACK, "router", "a", "--set", "externalFixedIPs=moon"), 1, "an address"),
    ("long-property", ("add", ACCOUNT, "vpc", "a", "--set", f"domainName={'x' * 2**20}"), 1, "1 to 1000 "),
    ("empty-id", ("add", ACCOUNT, "vpc", ""), 1, "1 to 300 printable characters"),
    ("long-id", ("add", ACCOUNT, "vpc", "x" * 301), 1, "1 to 300 printable characters"),
    ("line-break-in-id", ("add", ACCOUNT, "vpc", "a\nb"), 1, "1 to 300 printable characters"),
    ("unknown-object", ("show", "vpc", "vpc-9"), 3, "there is no vpc 'vpc-9'"),
    ("unknown-shoot", ("list", "shoot--x"), 3, "there is no account or Shoot 'shoot--x'"),
    ("unknown-fault", ("fail", ACCOUNT, "moon"), 1, "it has quota, throttling, "),
    ("fault-of-other-clouds", ("fail", "openstack-012345678901", "reservation-used"), 1, "has no fault"),
    ("unknown-part", ("fail", ACCOUNT, "quota", "--on", "moon"), 2, "is not one of"),
    ("no-times", ("fail", ACCOUNT, "quota", "--times", "0"), 2, "0 is not in the range"),
    ("no-time", ("fail", ACCOUNT, "quota", "--for", "soon"), 2, "write 90s, 15m"),
    ("endless-time", ("fail", ACCOUNT, "quota", "--for", "9" * 400 + "d"), 2, "write 90s, 15m"),
    ("long-shoot", ("fail", ACCOUNT, "quota", "--shoot", "x" * 64), 1, "more than 63 characters"),
)  # fmt: skip
def test_a_mistake_about_clouds_is_explained(
    alone: CommandLine, bus: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    shown = ask(alone, *arguments, expect=code)
    assert said in shown
    assert len(shown) < 1_000
    assert f"{ACCOUNT}: 0 existing objects" in ask(alone, "list")


@pytest.mark.parametrize("id_", ["a.b", "a b", "*", ">", "projects/p/global/images/i", "ä", "=0", "a" * 300])
def test_ids_may_have_any_printable_characters(alone: CommandLine, bus: str, id_: str) -> None:
    ask(alone, "add", ACCOUNT, "vpc", id_)
    ask(alone, "add", ACCOUNT, "elastic-ip", id_)
    assert asked(alone, "show", "vpc", id_)["id"] == id_
    ask(alone, "remove", ACCOUNT, "vpc", id_)
    assert asked(alone, "show", "elastic-ip", id_)["id"] == id_


def test_an_account_is_bounded_and_its_neighbours_are_not_harmed(alone: CommandLine, bus: str) -> None:
    write(bus, {inventory.key("existing", ACCOUNT, "vpc", f"vpc-{i}"): {"kind": "vpc", "id": f"vpc-{i}"}
        for i in range(1_000)})  # fmt: skip
    said = ask(alone, "add", ACCOUNT, "elastic-ip", "one-too-many", expect=1)
    assert (
        "has 1000 existing objects, and may not have more: remove some with `windowbox cloud remove`" in said
    )
    ask(alone, "add", ACCOUNT, "vpc", "vpc-7", "--set", "cidr=10.0.0.0/16")
    ask(alone, "add", OTHER, "vpc", "mine")
    ask(alone, "remove", ACCOUNT, "vpc", "vpc-8")
    ask(alone, "add", ACCOUNT, "elastic-ip", "the-last")


def test_a_full_inventory_is_explained(alone: CommandLine, bus: str) -> None:
    async def fill() -> None:
        async with connected(Access(bus, name="test")) as server:
            config = (await server.api(f"STREAM.INFO.KV_{streams.CLOUDS}"))["config"]
            await server.api(f"STREAM.UPDATE.KV_{streams.CLOUDS}", {**config, "max_bytes": 300})

    asyncio.run(fill())
    said = ask(alone, "add", OTHER, "vpc", "a", expect=1)
    assert "the inventory of all clouds is full: remove objects with `windowbox cloud remove`" in said


def test_faults_are_listed_replaced_and_ended(alone: CommandLine, bus: str) -> None:
    said = ask(alone, "fail", ACCOUNT, "depleted", "--on", "machines", "--times", "3", "--for", "5m")
    assert f"{ACCOUNT}: depleted, on machines, 3 times, until 20" in said
    ask(alone, "fail", ACCOUNT, "depleted", "--on", "machines")
    ask(alone, "fail", ACCOUNT, "quota", "--shoot", SHOOT, "--times", "1")
    summary = ask(alone, "list")
    assert "  fails: depleted, on machines\n" in summary
    assert f"  fails: quota, on all calls, of {SHOOT}, once\n" in summary
    [account] = asked(alone, "list", "-o", "json")
    assert account["faults"][0] == {"fault": "depleted", "on": "machines"}

    assert "1 fault ended; 0 objects retried" in ask(alone, "heal", ACCOUNT, "quota")
    assert "1 fault ended" in ask(alone, "heal", ACCOUNT)
    assert "0 faults ended" in ask(alone, "heal", ACCOUNT)
    assert "fails" not in ask(alone, "list")


def test_faults_are_bounded(alone: CommandLine, bus: str) -> None:
    known = [asdict(SetFault("quota", shoot=f"shoot--{i}")) for i in range(50)]
    write(bus, {inventory.key("faults", ACCOUNT): {"faults": known}})
    assert "has 50 faults: end some with `windowbox cloud heal" in ask(
        alone, "fail", ACCOUNT, "invalid", expect=1
    )
    ended = [asdict(SetFault("quota", shoot="x", until="2026-01-01T00:00:00Z"))]
    write(bus, {inventory.key("faults", ACCOUNT): {"faults": known[1:] + ended}})
    ask(alone, "fail", ACCOUNT, "invalid")


@pytest.mark.parametrize("cloud", ["aws"])
def test_the_account_of_a_secret_is_computed_without_showing_it(
    alone: CommandLine, tmp_path: Path, cloud: str
) -> None:
    secret = cloudshoots.example(cloud)["Secret"]
    file = tmp_path / "secret.yaml"
    file.write_text(yaml.safe_dump(secret))
    name = ask(alone, "account", str(file), "--cloud", cloud).strip()
    assert inventories.cloud_of(name).type == cloud
    file.write_text(yaml.safe_dump(secret | {"data": {"accessKeyID": "moon", "secret": "c2VjcmV0LXZhbHVl"}}))
    said = ask(alone, "account", str(file), "--cloud", cloud, expect=1)
    assert "secret-value" not in said
    assert "c2VjcmV0LXZhbHVl" not in said
