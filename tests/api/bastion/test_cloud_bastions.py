"""Bastions of clouds: where they run, what they need, and how they are reached."""

from __future__ import annotations

import pytest

from bus import streams
from bus.transport.buckets import Bucket
from bus.transport.connection import connected
from clouds import table
from clouds.frame import inventory
from tests.api.bastion import bastions
from tests.api.bastion.bastions import PARTS, Yard, appear
from tests.support import cloudshoots
from tests.support.cloudshoots import cloud_shoot, example
from tests.support.kindworld import CLOUDPROVIDER, KindWorld
from windowbox.models.objects import from_base64
from windowbox.models.refs import BASTIONS, PODS, SECRETS, SERVICES
from windowbox.settings.bussettings import Access
from windowbox.settings.kindsettings import KindSettings

pytestmark = [
    pytest.mark.serves("bastion", kinds=KindSettings(clouds=cloudshoots.SETTINGS)),
    pytest.mark.asyncio(loop_scope="module"),
]

IP = "172.18.255.231"
ENDPOINTS = {
    "alicloud": {"ip": IP},
    "aws": {"ip": IP, "hostname": "ec2-172-18-255-231.eu-central-1.compute.amazonaws.com"},
    "azure": {"ip": IP},
    "gcp": {"ip": IP},
    "openstack": {"ip": IP},
}
"""`status.ingress`."""


async def yard(world: KindWorld, cloud: str) -> Yard:
    """A Shoot of a cloud, and the namespace of its machines."""
    shoot = await cloud_shoot(world, cloud)
    made = Yard(shoot, world.client(f"infra-{shoot.namespace}"))
    await appear(made)
    return made


async def create(made: Yard, cloud: str) -> None:
    await made.shoot.create(BASTIONS, "cli", {"type": cloud, **bastions.spec()})


@pytest.mark.parametrize("cloud", sorted(ENDPOINTS))
async def test_a_bastion_of_a_cloud_comes_and_goes(world: KindWorld, cloud: str) -> None:
    made = await yard(world, cloud)
    await create(made, cloud)
    found = await made.ready()
    assert found.status["ingress"] == ENDPOINTS[cloud]
    pod, service = [await made.there.get(one, "bastion-cli") for one in (PODS, SERVICES)]
    assert pod
    assert pod.spec["containers"][0]["image"] == cloudshoots.IMAGE
    assert service
    assert service.spec["loadBalancerSourceRanges"] == ["203.0.113.7/32"]
    await made.gone()
    assert [await made.there.get(one, "bastion-cli") for one in PARTS] == [None] * 4


@pytest.mark.parametrize("cloud", sorted(ENDPOINTS))
async def test_a_bastion_needs_an_image_that_its_cloud_has(world: KindWorld, cloud: str) -> None:
    made = await yard(world, cloud)
    profile = example(cloud)["CloudProfile"]
    [image] = profile["spec"]["machineImages"]
    image["versions"].append({**image["versions"][0], "version": "9999.0.0"})
    spec = example(cloud)["Shoot"]["spec"]
    await made.shoot.cluster(spec=spec, cloudProfile=profile)
    await create(made, cloud)
    failed = await made.shoot.until_failed(BASTIONS, "cli")
    said = failed.status["lastError"]["description"]
    assert f"could not find machine image for {image['name']}/9999.0.0" in said
    assert await made.there.get(PODS, "bastion-cli") is None
    profile["spec"]["bastion"] = {
        "machineImage": {"name": image["name"], "version": image["versions"][0]["version"]}
    }
    await made.shoot.cluster(spec=spec, cloudProfile=profile)
    await made.shoot.ask(BASTIONS, "cli")
    await made.ready()


async def test_a_bastion_needs_credentials_also_to_go(world: KindWorld) -> None:
    made = await yard(world, "aws")
    await create(made, "aws")
    await made.ready()
    await made.shoot.secret(CLOUDPROVIDER, accessKeyID=b"short")
    await made.shoot.delete(BASTIONS, "cli")
    failed = await made.shoot.until_failed(BASTIONS, "cli")
    assert failed.status["lastError"]["codes"] == ["ERR_INFRA_UNAUTHENTICATED"]
    assert await made.there.get(PODS, "bastion-cli")


async def test_a_bastion_meets_the_faults_of_its_account(world: KindWorld) -> None:
    made = await yard(world, "azure")
    azure = table.cloud("azure")
    secret = await made.shoot.kube.get(SECRETS, made.shoot.namespace, CLOUDPROVIDER)
    data = {name: from_base64(one) for name, one in secret.raw["data"].items()}
    key = inventory.key("faults", inventory.account_name("azure", azure.account(data).identity))
    async with connected(Access(world.nats.url, name="test")) as bus:
        bucket, found = Bucket(bus, streams.CLOUDS), b'{"faults": [{"fault": "quota", "on": "bastion"}]}'
        await bucket.put(key, found, None)
        await create(made, "azure")
        failed = await made.shoot.until_failed(BASTIONS, "cli")
        assert failed.status["lastError"]["codes"] == ["ERR_INFRA_QUOTA_EXCEEDED"]
        await bucket.delete(key, (await bucket.get(key)).sequence)
    await made.shoot.ask(BASTIONS, "cli")
    await made.ready()
