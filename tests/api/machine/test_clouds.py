"""Shoots of clouds whose machines are simulated, from the Infrastructure to nodes, and back."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.api.machine.cloudmachines import NAME, change, machines_of, move, shoot_of
from tests.api.worker import workerobjects
from tests.support import cloudshoots
from tests.support.kindworld import KindWorld
from windowbox.models import refs
from windowbox.settings.kindsettings import KindSettings

pytestmark = [
    pytest.mark.serves(
        "infrastructure",
        "worker",
        "machinedeployment",
        "machineset",
        "machine",
        kinds=KindSettings(clouds=cloudshoots.SETTINGS),
    ),
    pytest.mark.asyncio(loop_scope="module"),
]


def disk(size: str, type_: str) -> list[dict[str, Any]]:
    return [{"name": "data", "size": size, "type": type_}]


LIVES = [
    # Cloud, providerID, instance type, region, labels of the zone, address pool of the first zone; a change
    # that stays in the class, and one that replaces machines.
    pytest.param(
        "aws",
        r"aws:///eu-central-1/i-[0-9a-f]{17}",
        ("m5.large", "eu-central-1", "eu-central-1a"),
        {"topology.ebs.csi.aws.com/zone": "eu-central-1a"},
        ".eu-central-1a",
        {"0/providerConfig": cloudshoots.config("aws", volume={"iops": 3000})},
        {"0/volume/encrypted": False},
        id="ALL-Z4+ALL-Z7+AWS-W7",
    ),
    pytest.param(
        "azure",
        r"azure:///westeurope/shoot--t--.*-small-z1-.*",
        ("Standard_D2_v3", "westeurope", "westeurope-1"),
        {"topology.disk.csi.azure.com/zone": "westeurope-1"},
        ".1",
        {"0/providerConfig": cloudshoots.config("azure", diagnosticsProfile={"enabled": True})},
        {"0/dataVolumes": disk("10Gi", "StandardSSD_LRS")},
        id="ALL-Z4+ALL-Z7+AZU-W7",
    ),
    pytest.param(
        "gcp",
        r"gce:///[^/]+/europe-west1-b/shoot--t--.*",
        ("n1-standard-2", "europe-west1", "europe-west1-b"),
        {"topology.gke.io/zone": "europe-west1-b"},
        "",
        {"0/volume/size": "40Gi"},
        {"0/providerConfig": cloudshoots.config("gcp", minCpuPlatform="Intel Skylake")},
        id="ALL-Z4+ALL-Z7+GCP-W14",
    ),
    pytest.param(
        "openstack",
        r"openstack:///europe-1/[0-9a-f-]{36}",
        ("medium_2_4", "europe-1", "europe-1a"),
        {"topology.cinder.csi.openstack.org/zone": "europe-1a"},
        "",
        {"0/providerConfig": cloudshoots.config("openstack", machineLabels=[{"name": "a", "value": "b"}])},
        {"0/providerConfig": cloudshoots.config("openstack", serverGroup={"policy": "anti-affinity"})},
        id="ALL-Z4+ALL-Z7+OST-W8",
    ),
    pytest.param(
        "alicloud",
        r"eu-central-1\.i-[0-9a-f]{20}",
        ("ecs.g6.large", "eu-central-1", "eu-central-1a"),
        {"topology.diskplugin.csi.alibabacloud.com/zone": "eu-central-1a"},
        ".eu-central-1a",
        {"0/labels": {"tier": "front"}},
        {"0/dataVolumes": disk("20Gi", "cloud_essd")},
        id="ALL-Z4+ALL-Z7+ALI-W7",
    ),
    pytest.param(
        "equinixmetal",
        r"equinixmetal://ny/[0-9a-f-]{36}",
        ("c3.small.x86", "ny", ""),
        {},
        "",
        {"0/providerConfig": cloudshoots.config("equinixmetal", reservationIDs=["one"])},
        {"0/nodeAgentSecretName": "gardener-node-agent-small-1b2c3"},
        id="ALL-Z4+ALL-Z7+EQX-W3",
    ),
]


@pytest.mark.parametrize(("cloud", "provider_id", "place", "labels", "subnet", "kept", "replaced"), LIVES)
async def test_a_shoot_of_a_cloud_lives_changes_moves_and_goes(
    world: KindWorld,
    cloud: str,
    provider_id: str,
    place: tuple[str, str, str],
    labels: dict[str, str],
    subnet: str,
    kept: dict[str, Any],
    replaced: dict[str, Any],
) -> None:
    async with shoot_of(world, cloud) as made:
        shoot = made.shoot
        await shoot.until_ready(refs.WORKERS, NAME)
        first = await machines_of(made)
        assert len(set(first.values())) == 2
        name = sorted(first)[0]
        assert re.fullmatch(provider_id, first[name])
        node = await made.until_node(f"machine-{name}", lambda one: bool(one and one.spec.get("providerID")))
        assert node.spec["providerID"] == first[name]
        type_, region, zone = place
        seen = {label.rpartition("/")[2]: value for label, value in node.labels.items()}
        assert (seen["instance-type"], seen["region"]) == (type_, region)
        assert seen.get("zone") in ((zone,) if zone else ("ewr1", "ny5"))
        assert labels.items() <= node.labels.items()
        size = node.annotations.get("machine.windowbox/capacity", "")
        assert size.startswith('{"cpu":"2",' if cloud != "equinixmetal" else "")
        pod = await made.pod(name)
        pool = f"shoot-machine-pods-{shoot.namespace}{subnet}-ipv4"
        assert pod.annotations["cni.projectcalico.org/ipv4pools"] == f'["{pool}"]'

        # What the hash does not have stays in the class: its machines remain.
        classes = await workerobjects.names(shoot, refs.MACHINE_CLASSES)
        await change(made, cloud, kept)
        assert await machines_of(made) == first
        assert await workerobjects.names(shoot, refs.MACHINE_CLASSES) == classes

        pods = {name: (await made.pod(name)).uid for name in first}
        await move(made)
        assert await machines_of(made) == first
        assert {name: (await made.pod(name)).uid for name in first} == pods

        await change(made, cloud, replaced)
        second = await machines_of(made)
        assert len(second) == 2
        assert not second.keys() & first.keys()
        assert not set(second.values()) & set(first.values())
    assert await workerobjects.names(shoot, refs.MACHINE_CLASSES) == []
