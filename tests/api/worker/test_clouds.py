"""Workers of clouds: their MachineClasses, MachineDeployments and status."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.api.worker import workerobjects
from tests.support import cloudshoots
from tests.support.cloudshoots import cloud_shoot, infrastructure
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld
from tests.support.rules import rule
from windowbox.models import refs
from windowbox.models.objects import Object
from windowbox.settings.kindsettings import KindSettings

pytestmark = [
    pytest.mark.serves(
        "infrastructure",
        "worker",
        "machinedeployment",
        "machineset",
        kinds=KindSettings(clouds=cloudshoots.SETTINGS),
    ),
    pytest.mark.asyncio(loop_scope="module"),
]


async def ready(world: KindWorld, cloud: str, changes: dict[str, Any] | None = None) -> tuple[Client, Object]:
    """A Shoot of a cloud, and its Worker, once that is ready."""
    shoot = await cloud_shoot(world, cloud)
    await infrastructure(shoot, cloud)
    await cloudshoots.worker(shoot, cloud, changes)
    async with workerobjects.driven(shoot):
        return shoot, await shoot.until_ready(refs.WORKERS, "cloud")


@rule("ALL-Z3", "ALL-Z5", "ALL-Z6", "ALL-Z8")
async def test_a_worker_of_aws_has_classes_of_aws(world: KindWorld) -> None:
    shoot, worker = await ready(world, "aws")
    head = {"name": "gardenlinux", "version": "1592.1.0", "architecture": "amd64"}
    assert worker.status["providerStatus"] == {
        "apiVersion": "aws.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "WorkerStatus",
        "machineImages": [{**head, "ami": "ami-034fd8c3f4026eb39"}],
    }
    names = [f"{shoot.namespace}-small-z{zone}" for zone in (1, 2)]
    assert [one["name"] for one in worker.status["machineDeployments"]] == names

    network = worker.spec["infrastructureProviderStatus"]["vpc"]
    for name, zone in zip(names, "ab", strict=True):
        deployment = await shoot.get(refs.MACHINE_DEPLOYMENTS, name)
        assert deployment
        machine = deployment.spec["template"]["spec"]
        assert machine["nodeTemplate"]["metadata"]["labels"] == {
            "topology.ebs.csi.aws.com/zone": f"eu-central-1{zone}",
            "topology.kubernetes.io/zone": f"eu-central-1{zone}",
        }
        made = await shoot.get(refs.MACHINE_CLASSES, machine["class"]["name"])
        secret = await shoot.get(refs.SECRETS, machine["class"]["name"])
        assert made
        assert secret
        assert base64.b64decode(secret.raw["data"]["userData"]) == cloudshoots.SCRIPT
        assert made.raw["provider"] == "AWS"
        assert made.raw["secretRef"] == {"name": made.name, "namespace": shoot.namespace}
        assert made.raw["credentialsSecretRef"] == {"name": CLOUDPROVIDER, "namespace": shoot.namespace}
        assert made.labels == {"operatingSystemName": "gardenlinux", "operatingSystemVersion": "1592.1.0"}
        assert made.raw["nodeTemplate"] == {
            "architecture": "amd64",
            "capacity": {"cpu": "2", "gpu": "0", "memory": "8Gi"},
            "instanceType": "m5.large",
            "region": "eu-central-1",
            "zone": f"eu-central-1{zone}",
        }
        [subnet] = [
            one["id"]
            for one in network["subnets"]
            if (one["zone"], one["purpose"]) == (f"eu-central-1{zone}", "nodes")
        ]
        spec = made.raw["providerSpec"]
        assert spec["networkInterfaces"] == [
            {"subnetID": subnet, "securityGroupIDs": [network["securityGroups"][0]["id"]]}
        ]
        assert spec["instanceMetadataOptions"] == {"httpPutResponseHopLimit": 2, "httpTokens": "required"}
    await shoot.delete(refs.WORKERS, "cloud")
    async with workerobjects.driven(shoot):
        await shoot.until_gone(refs.WORKERS, "cloud")
    assert await workerobjects.names(shoot, refs.MACHINE_CLASSES) == []
