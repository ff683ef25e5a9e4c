"""Workers of clouds: their MachineClasses, MachineDeployments and status, all of them in `clouds/*.yaml`."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.worker import workerobjects
from tests.support import cloudshoots
from tests.support.cloudshoots import cloud_shoot, infrastructure
from tests.support.kindworld import Client, KindWorld
from windowbox.models import refs
from windowbox.models.objects import Object
from windowbox.settings.cloudsettings import CLOUD_TYPES
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

NAME = "cloud"
WITHOUT_ZONES = {"zoned": False, "networks/zones": None, "networks/workers": "10.250.0.0/16"}
GOLDENS = Path(__file__).parent / "clouds"


async def made(shoot: Client, worker: Object) -> dict[str, Any]:
    """What a Worker has made and reported, without what API servers add."""
    classes = await workerobjects.listed(shoot, refs.MACHINE_CLASSES)
    deployments = await workerobjects.listed(shoot, refs.MACHINE_DEPLOYMENTS)
    kept = ("provider", "secretRef", "credentialsSecretRef", "nodeTemplate", "providerSpec")
    return {
        "status": {name: worker.status[name] for name in ("providerStatus", "machineDeployments")},
        "classes": {
            one.name: {
                "labels": dict(one.labels),
                **{name: one.raw[name] for name in kept if name in one.raw},
            }
            for one in classes
        },
        "deployments": {
            one.name: {
                "labels": dict(one.labels),
                **{name: one.spec[name] for name in ("replicas", "strategy", "template")},
            }
            for one in deployments
        },
    }


@pytest.mark.parametrize(
    "cloud", [pytest.param(one, id=f"ALL-Z2+ALL-Z3+ALL-Z5+ALL-Z6+ALL-Z8+{one}") for one in CLOUD_TYPES]
)
async def test_a_worker_makes_what_its_cloud_asks_for(world: KindWorld, cloud: str) -> None:
    shoot = await cloud_shoot(world, cloud, name=f"shoot--t--{cloud}")
    await infrastructure(shoot, cloud)
    await cloudshoots.worker(shoot, cloud)
    async with workerobjects.driven(shoot):
        worker = await shoot.until_ready(refs.WORKERS, NAME)
        found = await made(shoot, worker)
        assert found == yaml.safe_load((GOLDENS / f"{cloud}.yaml").read_text())
        for name in found["classes"]:
            secret = await shoot.get(refs.SECRETS, name)
            assert secret
            assert base64.b64decode(secret.raw["data"]["userData"]) == cloudshoots.SCRIPT
        await shoot.delete(refs.WORKERS, NAME)
        await shoot.until_gone(refs.WORKERS, NAME)
    assert await workerobjects.names(shoot, refs.MACHINE_CLASSES) == []


@pytest.mark.parametrize(
    ("cloud", "network", "with_group", "field"),
    [
        pytest.param(
            "openstack",
            {},
            {"0/providerConfig": cloudshoots.config("openstack", serverGroup={"policy": "anti-affinity"})},
            "serverGroupDependencies",
            id="OST-W8+OST-W9",
        ),
        pytest.param("azure", WITHOUT_ZONES, {"0/zones": None}, "vmoDependencies", id="AZU-W5"),
    ],
)
async def test_what_a_pool_as_a_whole_has_is_made_once_and_goes_with_it(
    world: KindWorld, cloud: str, network: dict[str, Any], with_group: dict[str, Any], field: str
) -> None:
    shoot = await cloud_shoot(world, cloud)
    await infrastructure(shoot, cloud, network)
    await cloudshoots.worker(shoot, cloud, with_group)
    async with workerobjects.driven(shoot):
        first = (await shoot.until_ready(refs.WORKERS, NAME)).status["providerStatus"][field]
        assert [one["poolName"] for one in first] == ["small"]
        spec = await cloudshoots.worker_spec(shoot, cloud, with_group)
        [asked] = spec["pools"]
        other = {**asked, "name": "other"}
        await shoot.ask(refs.WORKERS, NAME, spec={**spec, "pools": [asked, other]})
        both = (await shoot.until_ready(refs.WORKERS, NAME)).status["providerStatus"][field]
        assert both[0] == first[0]
        assert both[1]["poolName"] == "other"
        assert len({one[name] for one in both for name in ("id", "name")}) == 4
        await shoot.ask(refs.WORKERS, NAME, spec={**spec, "pools": [asked]})
        assert (await shoot.until_ready(refs.WORKERS, NAME)).status["providerStatus"][field] == first
        await shoot.ask(refs.WORKERS, NAME, spec={**spec, "pools": []})
        assert field not in (await shoot.until_ready(refs.WORKERS, NAME)).status["providerStatus"]
