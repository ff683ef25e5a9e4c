"""A Shoot that hosts its control plane itself, with infrastructure of ours and without."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.api.controlplane import controlplanes
from tests.api.controlplane.controlplanes import CONFIGURATION, KUBERNETES, PROFILE, SEED, SHOOT, STORAGE
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.refs import CLUSTERS, CONTROL_PLANES
from windowbox.settings.kindsettings import ControlPlaneSettings, KindSettings

ID = "shoot--t--hosts-itself"
CCM = "cloud-controller-manager"
TO_APISERVER, TO_DNS, TO_PUBLIC = (
    f"networking.gardener.cloud/{where}" for where in ("to-apiserver", "to-dns", "to-public-networks")
)


@dataclass(frozen=True)
class Expected:
    """What differs with the infrastructure."""

    binding: str
    configuration: dict[str, Any]
    reached: Collection[str]
    roles: Collection[str]


MANAGED = Expected(
    "local",
    {"kubeconfig": "/var/run/secrets/gardener.cloud/cloudprovider/kubeconfig", "namespace": f"infra-{ID}"},
    {TO_APISERVER, TO_DNS, TO_PUBLIC},
    {f"Role {CCM}", f"RoleBinding {CCM}"},
)
UNMANAGED = Expected("", {}, {TO_APISERVER, TO_DNS}, set())


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    # Nobody has made certificates of webhooks here: whoever wanted them would wait for them.
    settings = ControlPlaneSettings(ccm="deployment", webhooks=True)
    kinds = KindSettings(controlplane=settings)
    async with kind_world(plane, nats, "controlplane", kinds=kinds) as made:
        yield made


@rule("C-2", "C-9", "P-2", "Y-2", "WF-32")
@pytest.mark.parametrize(
    "expected",
    [pytest.param(MANAGED, id="managed"), pytest.param(UNMANAGED, id="unmanaged", marks=pytest.mark.long)],
)
async def test_its_control_plane_lives_in_kube_system(world: KindWorld, expected: Expected) -> None:
    workers = {"workers": [{"name": "cp", "controlPlane": {}}]}
    # An empty name is one: the infrastructure of such a Shoot is managed.
    spec = KUBERNETES | {"provider": workers, "credentialsBindingName": expected.binding or None}
    shoot = await world.shoot("kube-system", spec=spec, status={"technicalID": ID}, cloudProfile=PROFILE)
    await controlplanes.controlplane(shoot)
    await controlplanes.until_ready(shoot)
    await _check_control_plane(shoot, expected)

    await shoot.delete(CONTROL_PLANES, "local")
    await shoot.until_gone(CONTROL_PLANES, "local")
    assert await controlplanes.bundles(shoot) == {}
    await shoot.delete(CLUSTERS, shoot.namespace)


async def _check_control_plane(shoot: Client, expected: Expected) -> None:
    # The webhooks of a Shoot like this are those of its own seed: none are handed over.
    assert (await controlplanes.bundles(shoot)).keys() == {CONFIGURATION, SEED, SHOOT, STORAGE}
    _, configuration = await controlplanes.held(shoot, CONFIGURATION)
    text = configuration["ConfigMap cloud-provider-config"]["data"]["config.yaml"]
    assert yaml.safe_load(text).get("runtimeCluster", {}) == expected.configuration
    _, seed = await controlplanes.held(shoot, SEED)
    assert seed.keys() == {f"ServiceAccount {CCM}", f"Deployment {CCM}", *expected.roles}
    template = seed[f"Deployment {CCM}"]["spec"]["template"]
    labels = {name for name in template["metadata"]["labels"] if "networking" in name}
    assert labels == set(expected.reached)
    mounted = {volume["name"] for volume in template["spec"]["volumes"]}
    assert (CLOUDPROVIDER in mounted) is bool(expected.binding)
    (container,) = template["spec"]["containers"]
    assert f"--cluster-name={ID}" in container["args"]
    names = {one.labels.get("name") for one in (await controlplanes.secrets(shoot)).values()}
    assert {"ca-provider-local-controlplane", "cloud-controller-manager-server"} <= names
