"""Bastions, from the API to what is made of them."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest_asyncio

from tests.kinds.bastions import ADDRESS, IMAGE, SCRIPT, yard
from tests.kinds.kindworld import KindWorld, kind_world
from tests.natsserver import NatsServer
from tests.rules import rule
from tests.servers import ControlPlane
from windowbox.models.refs import NETWORK_POLICIES, PODS, SECRETS, SERVICES

NAME = "bastion-cli"


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    async with kind_world(plane, nats, "bastion") as made:
        yield made


@rule("BA-2", "BA-3", "BA-6", "B.5")
async def test_a_bastion_comes_and_goes(world: KindWorld) -> None:
    made = await yard(world)
    await made.create()
    found = await made.ready()
    assert found.status["ingress"] == ADDRESS
    assert found.finalizers == ("extensions.gardener.cloud/bastion",)
    there = made.there
    secret = await there.get(SECRETS, NAME)
    assert secret and base64.b64decode(secret.raw["data"]["userdata"]) == SCRIPT
    pod, service = await there.get(PODS, NAME), await there.get(SERVICES, NAME)
    assert pod and pod.spec["containers"][0]["image"] == IMAGE
    assert service and service.spec["loadBalancerSourceRanges"] == ["203.0.113.7/32"]
    await made.gone()
    for resource in (SECRETS, PODS, SERVICES, NETWORK_POLICIES):
        assert await there.get(resource, NAME) is None
