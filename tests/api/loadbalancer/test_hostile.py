"""Services that ask for what cannot be, beside one that does nobody any harm."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from pydantic import ValidationError

from tests.support.balancerworld import BalancerWorld, address, balancer_world, greeting, played_node
from tests.support.cases import cases
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane
from windowbox.settings.lbsettings import LoadBalancerSettings

PLACE = f"127.67.{os.getpid() % 250}"
NODE, NODE_PORT = f"{PLACE}.1", 31067
LONG = "x" * 10_000


@pytest_asyncio.fixture
async def world(
    control_plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> AsyncIterator[BalancerWorld]:
    ranges = [{"prefixes": [f"{PLACE}.16/28"]}]
    async with (
        balancer_world(control_plane, nats, tmp_path, "hostile", ranges=ranges) as made,
        played_node(NODE, NODE_PORT, "hello"),
    ):
        await made.node("n" * 63 + "." + "n" * 63 + "." + "n" * 63 + "." + "n" * 61, NODE)
        yield made


def annotated(**annotations: str) -> dict[str, Any]:
    prefix = "loadbalancer.windowbox/"
    return {"metadata": {"annotations": {prefix + k.replace("_", "-"): v for k, v in annotations.items()}}}


CASES = [
    (
        "outside",
        annotated(address="127.99.0.1"),
        "AddressOutsideRange",
        "127.99.0.1 is none of the addresses",
    ),
    ("nonsense", annotated(address="not an address"), "", "not an address"),
    ("taken", annotated(address=f"{PLACE}.23"), "AddressTaken", "belongs to Service hostile/good"),
    ("long", annotated(address=LONG), "", "loadbalancer.windowbox/address"),
    ("proxy", annotated(proxy_protocol=LONG), "", "loadbalancer.windowbox/proxy-protocol"),
    ("sctp", {"ports": [{"port": 9, "protocol": "SCTP"}]}, "", "SCTP"),
    ("share", annotated(share=LONG), "", "loadbalancer.windowbox/share"),
]


async def test_each_is_told_what_is_wrong_and_none_harms_another(world: BalancerWorld) -> None:
    async with world.worker() as parts:
        await world.service("good", node_port=NODE_PORT, **annotated(address=f"{PLACE}.23"))
        where = await world.served("good")
        for name, asked, _, _ in CASES:
            ports = asked.get("ports")
            await world.service(name, **({**asked, "ports": ports} if ports else asked))
        for name, _, reason, words in CASES:
            said = await world.complaint(name, words)
            assert not reason or reason in said or words in said, said
            assert len(said) <= 1100
            found = await world.get(name)
            assert found
            assert not address(found)
        assert await greeting(where) == "hello"
        mine = [a for a, holder in parts.store.holders() if holder.namespace == world.namespace]
        assert mine == [where]
        for name, *_ in CASES:
            await world.delete(name)
            await world.gone(name)
        await world.service("n" * 63)
        assert await world.served("n" * 63)


@cases(
    "prefixes",
    ("overlapping", ["10.0.0.0/24", "10.0.0.128/25"]),
    ("no-such-length", ["10.0.0.0/33"]),
    ("host-bits-set", ["10.0.0.1/24"]),
    ("nonsense", ["range"]),
    ("empty", []),
)
def test_ranges_that_cannot_be_are_refused_by_name(prefixes: list[str]) -> None:
    with pytest.raises(ValidationError) as refused:
        LoadBalancerSettings.model_validate({"ranges": [{"prefixes": prefixes}]})
    said = str(refused.value)
    assert "ranges" in said
    assert all(prefix in said for prefix in prefixes)
