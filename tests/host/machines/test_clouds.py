"""Shoots of six clouds with real nodes, from the shipped examples."""

from __future__ import annotations

import pytest

from commands.demo import showshoot
from sandbox.progress import Progress
from sandbox.shoots import creation, deletion, records
from sandbox.shoots.creation import Sandbox
from tests.host.machines.conftest import ShootWorld
from windowbox.models.clouds import CLOUD_TYPES

_IDS = {
    "alicloud": "eu-central-1.i-",
    "aws": "aws:///eu-central-1/i-",
    "azure": "azure:///westeurope/shoot--local--on-azure-",
    "equinixmetal": "equinixmetal://ny/",
    "gcp": "gce:///windowbox-example/europe-west1-b/shoot--local--on-gcp-",
    "openstack": "openstack:///europe-1/",
}


@pytest.mark.long  # each starts a control plane; tests/api has them with the parts of the suite
@pytest.mark.parametrize("cloud", CLOUD_TYPES)
def test_a_shoot_has_a_node_a_volume_and_a_load_balancer(sandbox: Sandbox, cloud: str) -> None:
    name = f"on-{cloud}"
    try:
        shoot = creation.create(sandbox, name, 1, Progress(print), lambda what, seconds: None, cloud)
        world = ShootWorld(sandbox, shoot)
        node = world.node()
        assert node["spec"]["providerID"].startswith(_IDS[cloud])
        assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"]
        assert world.expose("web")
        if cloud != "equinixmetal":  # it has no StorageClass
            showshoot.write_volume(sandbox, shoot, lambda what: None, "20Gi")
    finally:
        deletion.delete(sandbox, name, lambda what, seconds: None)
    assert deletion.remains(sandbox, shoot) == []
    assert name not in records.all_names(sandbox.folder)
