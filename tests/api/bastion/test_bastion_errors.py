"""What cannot be made of a Bastion is told, and nothing is left half-made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.api.bastion import bastions
from tests.api.bastion.bastions import yard
from tests.support.kindworld import CLOUDPROVIDER, KindWorld
from tests.support.rules import rule
from windowbox.models.refs import BASTIONS, PODS, SECRETS, Resource

pytestmark = pytest.mark.serves("bastion")

NAME = "bastion-cli"
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")


def _with_except(cidr: str, *left_out: str) -> dict[str, Any]:
    return bastions.spec() | {"ingress": [{"ipBlock": {"cidr": cidr, "except": list(left_out)}}]}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param(
            bastions.spec("203.0.113.7"), "spec.ingress[0].ipBlock.cidr is '203.0.113.7'", id="BA-5-cidr"
        ),
        pytest.param(bastions.spec() | {"ingress": []}, "spec.ingress is empty", id="B.5-nobody"),
        pytest.param(
            _with_except("10.0.0.0/24", "10.0.0.0/25", "10.0.0.128/25"),
            "spec.ingress[0].ipBlock.except leaves nothing of 10.0.0.0/24",
            id="B.5-nothing-left",
        ),
    ],
)
async def test_blocks_that_make_no_sense_open_nothing(
    world: KindWorld, spec: dict[str, Any], said: str
) -> None:
    made = await yard(world)
    await made.shoot.create(BASTIONS, "cli", spec)
    found = await made.shoot.until_failed(BASTIONS, "cli")
    error = found.status["lastError"]
    assert error["description"].startswith(f"Error reconciling Bastion: {said}")
    assert error["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    assert [await made.there.get(one, NAME) for one in bastions.PARTS] == [None] * 4
    await made.shoot.ask(BASTIONS, "cli", spec=bastions.spec())
    await made.ready()


def _config(**more: Any) -> dict[str, Any]:
    profile = bastions.cloud_profile()
    profile["spec"]["providerConfig"] |= more
    return profile


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        pytest.param(
            bastions.cloud_profile(providerConfig=None),
            "spec.providerConfig of the CloudProfile is missing",
            id="B.9-no-provider-config",
        ),
        pytest.param(
            _config(machineImage=[]),
            "spec.providerConfig of the CloudProfile: machineImage is unknown",
            id="2.16-field",
        ),
        pytest.param(
            bastions.cloud_profile(machineTypes=[{"name": "arm", "cpu": "1", "architecture": "arm64"}]),
            "spec.machineImages of the CloudProfile has no version that fits",
            id="B.13-architecture",
        ),
    ],
)
async def test_what_a_profile_lacks_is_named(world: KindWorld, profile: dict[str, Any], said: str) -> None:
    made = await yard(world, profile)
    await made.create()
    found = await made.shoot.until_failed(BASTIONS, "cli")
    assert found.status["lastError"]["description"].startswith(f"Error reconciling Bastion: {said}")
    assert found.status["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    assert [await made.there.get(one, NAME) for one in bastions.PARTS] == [None] * 4
    # It may be deleted all the same.
    await made.gone()


async def test_a_name_that_no_service_can_have_is_refused(world: KindWorld) -> None:
    made = await yard(world)
    name = "a" * 56
    await made.create(name)
    found = await made.shoot.until_failed(BASTIONS, name)
    assert "metadata.name is 'aaa" in found.status["lastError"]["description"]
    await made.gone(name)


@rule("B-1", "B.17")
async def test_a_pod_that_is_not_admitted_is_asked_for_again_soon(world: KindWorld) -> None:
    made = await yard(world)
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await world.kube.create(QUOTAS, made.there.namespace, quota)
    await made.create()
    found = await made.shoot.until_failed(BASTIONS, "cli")
    assert found.status["lastError"]["codes"] == ["ERR_INFRA_QUOTA_EXCEEDED"]
    await made.there.delete(QUOTAS, "none")
    async with asyncio.timeout(60):  # what a person has to mend is left alone for longer
        await made.there.until(PODS, NAME, lambda found: found is not None)
    await made.ready()


@rule("K-1", "K-3", "B.17")
async def test_without_credentials_nothing_is_tried(world: KindWorld) -> None:
    made = await yard(world)
    await made.shoot.delete(SECRETS, CLOUDPROVIDER)
    await made.create()
    found = await made.shoot.until_failed(BASTIONS, "cli")
    assert found.status["lastError"]["codes"] == ["ERR_INFRA_UNAUTHENTICATED"]
    await made.shoot.secret(CLOUDPROVIDER, kubeconfig=world.kubeconfig())
    await made.shoot.ask(BASTIONS, "cli")
    await made.ready()
