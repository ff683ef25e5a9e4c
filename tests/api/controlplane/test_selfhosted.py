"""A Shoot that hosts its control plane itself, with infrastructure of ours and without, object by object."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.api.controlplane.controlplanes import (
    CONFIGURATION,
    KUBERNETES,
    PROFILE,
    SEED,
    SHOOT,
    STORAGE,
    bundles,
    controlplane,
    held,
    secrets,
    until_ready,
)
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.objects import Object, mapping
from windowbox.models.refs import CLUSTERS, CONTROL_PLANES, ENDPOINT_SLICES, EXPOSURES, NAMESPACES, SERVICES
from windowbox.settings.kindsettings import ControlPlaneSettings, KindSettings

ID = "shoot--t--hosts-itself"
CCM = "cloud-controller-manager"
VIP = {"ip": "172.18.255.226", "ipMode": "Proxy"}
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
    exposure: str
    """What is told of an exposure; nothing if it succeeds."""


MANAGED = Expected(
    "local",
    {"kubeconfig": "/var/run/secrets/gardener.cloud/cloudprovider/kubeconfig", "namespace": f"infra-{ID}"},
    {TO_APISERVER, TO_DNS, TO_PUBLIC},
    {f"Role {CCM}", f"RoleBinding {CCM}"},
    "",
)
UNMANAGED = Expected("", {}, {TO_APISERVER, TO_DNS}, set(), "spec.credentialsRef is not set: name the Secret")


@pytest_asyncio.fixture
async def world(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    # Nobody has made certificates of webhooks here: whoever wanted them would wait for them.
    settings = ControlPlaneSettings(ccm="deployment", webhooks=True)
    kinds = KindSettings(controlplane=settings)
    async with kind_world(plane, nats, "controlplane", "exposure", kinds=kinds) as made:
        yield made


@rule("C-2", "C-9", "SE-5", "P-2", "Y-2")
@pytest.mark.parametrize("expected", [MANAGED, UNMANAGED], ids=["managed", "unmanaged"])
async def test_its_control_plane_and_exposure_live_in_kube_system(
    world: KindWorld, expected: Expected
) -> None:
    workers = {"workers": [{"name": "cp", "controlPlane": {}}]}
    # An empty name is one: the infrastructure of such a Shoot is managed.
    spec = KUBERNETES | {"provider": workers, "credentialsBindingName": expected.binding or None}
    shoot = await world.shoot("kube-system", spec=spec, status={"technicalID": ID}, cloudProfile=PROFILE)
    await controlplane(shoot)
    await until_ready(shoot)
    await _check_control_plane(shoot, expected)
    await _check_exposure(world, shoot, expected)

    await shoot.delete(CONTROL_PLANES, "local")
    await shoot.until_gone(CONTROL_PLANES, "local")
    assert await bundles(shoot) == {}
    await shoot.delete(CLUSTERS, shoot.namespace)


async def _check_control_plane(shoot: Client, expected: Expected) -> None:
    # The webhooks of a Shoot like this are those of its own seed: none are handed over.
    assert (await bundles(shoot)).keys() == {CONFIGURATION, SEED, SHOOT, STORAGE}
    _, configuration = await held(shoot, CONFIGURATION)
    text = configuration["ConfigMap cloud-provider-config"]["data"]["config.yaml"]
    assert yaml.safe_load(text).get("runtimeCluster", {}) == expected.configuration
    _, seed = await held(shoot, SEED)
    assert seed.keys() == {f"ServiceAccount {CCM}", f"Deployment {CCM}", *expected.roles}
    template = seed[f"Deployment {CCM}"]["spec"]["template"]
    labels = {name for name in template["metadata"]["labels"] if "networking" in name}
    assert labels == set(expected.reached)
    mounted = {volume["name"] for volume in template["spec"]["volumes"]}
    assert (CLOUDPROVIDER in mounted) is bool(expected.binding)
    (container,) = template["spec"]["containers"]
    assert f"--cluster-name={ID}" in container["args"]
    names = {one.labels.get("name") for one in (await secrets(shoot)).values()}
    assert {"ca-provider-local-controlplane", "cloud-controller-manager-server"} <= names


async def _check_exposure(world: KindWorld, shoot: Client, expected: Expected) -> None:
    """gardenlet keeps the endpoints in step with the nodes, as the registration asks it to."""
    there = world.client(f"infra-{ID}")
    if expected.binding:
        await world.kube.create(NAMESPACES, "", {"metadata": {"name": there.namespace}})
    secret = {"apiVersion": "v1", "kind": "Secret", "name": CLOUDPROVIDER, "namespace": shoot.namespace}
    spec = {"port": 443, "endpoints": _nodes("10.0.130.5")}
    await shoot.create(EXPOSURES, "self", spec | ({"credentialsRef": secret} if expected.binding else {}))
    if expected.exposure:
        failed = await shoot.until_failed(EXPOSURES, "self")
        assert expected.exposure in failed.status["lastError"]["description"]
    else:
        await there.until(SERVICES, "exposure-self", lambda found: found is not None)
        status = {"status": {"loadBalancer": {"ingress": [VIP]}}}
        await there.merge(SERVICES, "exposure-self", status, part="status")
        ready = await shoot.until_ready(EXPOSURES, "self")
        assert ready.status["ingress"] == [VIP]
        for addresses in (["10.0.130.5", "10.0.130.6"], ["10.0.130.6"]):
            await shoot.ask(EXPOSURES, "self", spec={"endpoints": _nodes(*addresses)})
            await there.until(ENDPOINT_SLICES, "exposure-self-ipv4", _leads_to(addresses))
            await shoot.until_ready(EXPOSURES, "self")
    await shoot.delete(EXPOSURES, "self")
    await shoot.until_gone(EXPOSURES, "self")
    assert await there.get(SERVICES, "exposure-self") is None


def _nodes(*addresses: str) -> list[dict[str, Any]]:
    return [
        {"nodeName": f"machine-{number}", "addresses": [{"type": "InternalIP", "address": address}]}
        for number, address in enumerate(addresses)
    ]


def _leads_to(addresses: list[str]) -> Any:
    def holds(found: Object | None) -> bool:
        endpoints = (found.raw.get("endpoints") if found else None) or []
        return [mapping(one)["addresses"][0] for one in endpoints] == addresses

    return holds
