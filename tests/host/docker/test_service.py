"""A container for each Service, with published ports."""

from __future__ import annotations

import asyncio
import dataclasses
import socket

import pytest

from tests.host.docker import traffic
from tests.host.docker.host import BACKEND4, Host
from tests.host.docker.traffic import backend, listener
from tests.servers.envoy.clients import greeting
from tests.servers.envoy.nodes import Node
from tests.support.rules import rule
from windowbox.errors import Refused
from windowbox.models.refs import ObjectRef
from workers.loadbalancer.envoy.attachments import Attachment, Order
from workers.loadbalancer.envoy.docker import boxes

ADDRESS, OTHER = "172.18.255.232", "172.18.255.233"
NAME = "gardener-lb-f058bf43"

pytestmark = pytest.mark.parametrize("settings", ["docker-per-service"], indirect=True)


def order(attachment: Attachment, *ports: int, name: str = NAME, address: str = ADDRESS) -> Order:
    absent = Node("absent", BACKEND4, 9)
    return traffic.order(attachment, *(listener(absent, address, port) for port in ports), name=name)


@rule("LB-9-names", "LB-9-labels", "LB-16-names")
async def test_teardown_finds_it_by_name_network_and_labels(attachment: Attachment, host: Host) -> None:
    await attachment.prepare([ADDRESS])
    await attachment.start(order(attachment, 80))
    assert host.containers(
        "network=kind",
        "label=gardener.cloud/role=loadbalancer",
        "label=gardener.cloud/service=shop/web",
        "label=kubernetes.io/cluster=kind",
    ) == {NAME}


async def test_the_cluster_of_a_service_may_be_another_one(attachment: Attachment, host: Host) -> None:
    await attachment.prepare([ADDRESS])
    shoots = boxes.service_labels(ObjectRef("shoot--garden--a", "services", "shop", "web"), runtime="kind")
    await attachment.start(dataclasses.replace(order(attachment, 80), labels=shoots))
    labels = ("label=kubernetes.io/cluster=shoot--garden--a", "label=gardener.cloud/service=shop/web")
    assert host.containers(*labels) == {NAME}
    assert await attachment.names() == [NAME]


@rule("LB-14-docker")
async def test_other_ports_need_another_container(attachment: Attachment, host: Host) -> None:
    await attachment.prepare([ADDRESS])
    async with backend("a", BACKEND4) as a:
        await attachment.start(order(attachment, 80))
        (before,) = host.containers()
        started = host.inspected(before)["Id"]
        both = listener(a, ADDRESS, 81), listener(a, ADDRESS, 81, "UDP")
        await attachment.start(traffic.order(attachment, *both, name=NAME, generation=2))

        await traffic.greeted(ADDRESS, 81, "a")
        assert await traffic.answered(ADDRESS, 81) == "a"
        assert host.containers() == {before}
        assert host.inspected(before)["Id"] != started
        with pytest.raises(OSError):
            await greeting(ADDRESS, 80)


@rule("LB-14-docker")
async def test_a_port_of_another_container_is_refused_in_words(attachment: Attachment, host: Host) -> None:
    await attachment.prepare([ADDRESS])
    await traffic.live(await attachment.start(order(attachment, 80)))
    with pytest.raises(Refused, match="another container publishes that port"):
        await attachment.start(order(attachment, 80, name="other"))
    assert host.containers() == {NAME}


@rule("LB-14-docker")
async def test_a_port_of_another_program_is_refused_in_words(attachment: Attachment, host: Host) -> None:
    await attachment.prepare([ADDRESS])
    refused = pytest.raises(Refused, match="another program has that address and port")
    with socket.create_server((ADDRESS, 80)), refused:
        await attachment.start(order(attachment, 80))
    assert host.containers() == set()


@rule("LB-14-docker")
async def test_an_address_that_the_host_lacks_is_refused_in_words(attachment: Attachment, host: Host) -> None:
    with pytest.raises(Refused, match="the address is not on this host"):
        await attachment.start(order(attachment, 80, address=OTHER))
    assert host.containers() == set()


@rule("LB-11-5")
async def test_a_container_that_was_never_started_makes_way(attachment: Attachment, host: Host) -> None:
    await attachment.prepare([ADDRESS])
    create = f"create --publish={ADDRESS}:80:80 --name=gardener-lb-f058bf43 windowbox-test-envoy sh"
    await asyncio.to_thread(host.engine.docker, *create.split())
    await attachment.start(order(attachment, 80))
    assert await attachment.names() == [NAME]
