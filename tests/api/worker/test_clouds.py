"""Workers of clouds: their MachineClasses, MachineDeployments and status, all of them in `clouds/*.yaml`."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from clouds import table
from clouds.frame.changes import oracle
from clouds.frame.changes.effects import Kind
from tests.api.worker import workerobjects
from tests.support import cloudshoots
from tests.support.cloudinventory import account, add
from tests.support.cloudshoots import changed, cloud_shoot, example, infrastructure
from tests.support.kindworld import Client, KindWorld
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.models import refs
from windowbox.models.clouds import CLOUD_TYPES
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


@pytest.mark.parametrize("cloud", ["aws", "gcp", "equinixmetal"])
async def test_what_a_cloud_says_of_a_machine_gives_the_worker_its_code(world: KindWorld, cloud: str) -> None:
    shoot, fault = await cloud_shoot(world, cloud), table.cloud(cloud).faults["depleted"]
    await infrastructure(shoot, cloud)
    await cloudshoots.worker(shoot, cloud)
    machine = (await eventually(lambda: workerobjects.listed(shoot, refs.MACHINES)))[0]
    said = f"machine codes error: code = [ResourceExhausted] message = [{fault.error()}]"
    last = {"description": said, "state": "Failed", "type": "Create", "errorCode": "ResourceExhausted"}
    await shoot.merge(refs.MACHINES, machine.name, {"status": {"lastOperation": last}}, part="status")
    failed = await shoot.until_failed(refs.WORKERS, NAME)
    assert fault.text in failed.status["lastError"]["description"]
    assert tuple(failed.status["lastError"].get("codes", ())) == fault.codes


_POOL = "provider/workers/0"
_IOPS = cloudshoots.config("aws", volume={"iops": 4000})


class Update:
    """A Shoot of type aws, and the changes of its spec so far."""

    def __init__(self, shoot: Client) -> None:
        self._shoot = shoot
        self._given = example("aws")
        self._rolls = 0

    async def change(self, changes: dict[str, Any]) -> list[Kind]:
        """What the oracle tells. Infrastructure and Worker get the changes, as gardenlet would give them."""
        old = self._given["Shoot"]
        new = changed(old, {f"spec/{path}": value for path, value in changes.items()})
        self._given["Shoot"] = new
        found = oracle.effects(table.cloud("aws"), table.changes("aws"), old, new, self._find, self._find)
        self._rolls += any(one.kind is Kind.ROLLS for one in found)
        provider = new["spec"]["provider"]
        await self._shoot.ask(
            refs.INFRASTRUCTURES, NAME, spec={"providerConfig": provider["infrastructureConfig"]}
        )
        network = await self._shoot.until_ready(refs.INFRASTRUCTURES, NAME)
        [pool] = cloudshoots.pools("aws")
        pool |= {name: one for name, one in provider["workers"][0].items() if name != "machine"}
        pool["nodeAgentSecretName"] += "b" * self._rolls  # gardenlet hashes the volume into it
        spec = {"infrastructureProviderStatus": network.status["providerStatus"], "pools": [pool]}
        await self._shoot.ask(refs.WORKERS, NAME, spec=spec)
        await self._shoot.until_ready(refs.WORKERS, NAME)
        return [one.kind for one in found]

    def _find(self, kind: str, namespace: str, name: str) -> Any:
        return self._given.get(kind)

    async def egress(self) -> list[str]:
        found = await self._shoot.get(refs.INFRASTRUCTURES, NAME)
        assert found
        return list(found.status["egressCIDRs"])

    async def classes(self) -> dict[str, Any]:
        """The providerSpecs of the MachineClasses in use, by name."""
        deployments = await workerobjects.listed(self._shoot, refs.MACHINE_DEPLOYMENTS)
        used = {one.spec["template"]["spec"]["class"]["name"] for one in deployments}
        found = await workerobjects.listed(self._shoot, refs.MACHINE_CLASSES)
        return {one.name: one.raw["providerSpec"] for one in found if one.name in used}

    async def machines(self) -> set[str]:
        return {*await workerobjects.names(self._shoot, refs.MACHINES)}


@rule("AWS-U2", "AWS-W7", "ALL-Z4")
async def test_updates_do_what_the_oracle_tells(world: KindWorld) -> None:
    shoot = await cloud_shoot(world, "aws")
    await infrastructure(shoot, "aws")
    await cloudshoots.worker(shoot, "aws")
    await add(world, account("aws"), {"kind": "elastic-ip", "id": "eipalloc-1"})
    async with workerobjects.driven(shoot):
        await shoot.until_ready(refs.WORKERS, NAME)
        update = Update(shoot)
        classes, machines, egress = await update.classes(), await update.machines(), await update.egress()

        assert await update.change({f"{_POOL}/providerConfig": _IOPS}) == [Kind.IN_PLACE]
        same = await update.classes()
        assert same.keys() == classes.keys()
        assert {one["blockDevices"][0]["ebs"]["iops"] for one in same.values()} == {4000}
        assert (await update.machines(), await update.egress()) == (machines, egress)

        own = {"provider/infrastructureConfig/networks/zones/0/elasticIPAllocationID": "eipalloc-1"}
        assert await update.change(own) == [Kind.LASTING, Kind.EGRESS]
        moved = await update.egress()
        assert (moved[0] == egress[0], moved[1:]) == (False, egress[1:])
        assert await update.machines() == machines

        three = {f"{_POOL}/minimum": 3, f"{_POOL}/maximum": 3}
        assert await update.change(three) == [Kind.ADDS, Kind.IN_PLACE]
        more = await update.machines()
        assert (len(more), more >= machines) == (3, True)

        assert await update.change({f"{_POOL}/volume/size": "30Gi"}) == [Kind.ROLLS]
        assert not (await update.classes()).keys() & classes.keys()
        assert not await update.machines() & more
