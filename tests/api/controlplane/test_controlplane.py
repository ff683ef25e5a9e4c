"""A ControlPlane on a real API server: what is made for it, waited for, kept and removed."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.api.controlplane import controlplanes
from tests.api.controlplane.controlplanes import (
    CCM,
    CONFIG_MAPS,
    CONFIGURATION,
    KUBERNETES,
    PROFILE,
    SEED,
    SHOOT,
    STORAGE,
    WINDOWBOX,
)
from tests.support.kindworld import Client, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.resourcemanager import ResourceManager
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.gardener.images import BUILT_IN, ImageSource
from windowbox.models.refs import CLUSTERS, CONTROL_PLANES, DEPLOYMENTS, MANAGED_RESOURCES
from windowbox.settings.kindsettings import ControlPlaneSettings, KindSettings

pytestmark = [pytest.mark.serves("controlplane"), pytest.mark.asyncio(loop_scope="module")]

FORCED = {"annotations": {"confirmation.gardener.cloud/force-deletion": "true"}}
GENERIC = b"""
apiVersion: v1
kind: Config
current-context: shoot
clusters: [{name: shoot, cluster: {server: https://kube-apiserver, certificate-authority-data: Y2E=}}]
contexts: [{name: shoot, context: {cluster: shoot, user: shoot}}]
users: [{name: shoot, user: {tokenFile: /var/run/secrets/token}}]
"""


@pytest_asyncio.fixture(loop_scope="module")
async def deploying(plane: ControlPlane, nats: NatsServer) -> AsyncIterator[KindWorld]:
    """Each Shoot gets a cloud-controller-manager."""
    newer = [
        ImageSource(name=name, ref=f"{name}:newer", target_version=">= 1.36")
        for name in ("cloud-controller-manager-local", "local-path-provisioner")
    ]
    kinds = KindSettings(
        controlplane=ControlPlaneSettings(ccm="deployment"), images=BUILT_IN.overwritten(newer)
    )
    async with kind_world(plane, nats, "controlplane", kinds=kinds) as made:
        yield made


@rule("A.6", "Y-1", "Y-2", "Y-3", "B.18", "M-1", "M-2", "M-3", "U-1")
async def test_the_first_run_creates_all_objects_of_the_contract(deploying: KindWorld) -> None:
    shoot = await controlplanes.shoot_of(deploying)
    await controlplanes.controlplane(shoot)
    done = await controlplanes.until_ready(shoot)
    assert done.finalizers == ("extensions.gardener.cloud/controlplane",)
    assert done.last_operation["description"] == "Successfully reconciled ControlPlane"
    assert done.last_operation["type"] == "Create"

    for_seed = {"class": "seed", "keepObjects": False}
    labels = {"shoot.gardener.cloud/no-cleanup": "true"}
    for_shoot = {"injectLabels": labels, "keepObjects": False, "forceOverwriteAnnotations": False}
    found = await controlplanes.bundles(shoot)
    specs = {name: {k: v for k, v in one.spec.items() if k != "secretRefs"} for name, one in found.items()}
    assert specs == {
        CONFIGURATION: for_seed,
        SEED: for_seed,
        SHOOT: for_shoot,
        STORAGE: for_shoot | {"forceOverwriteAnnotations": True},
    }
    key, configuration = await controlplanes.held(shoot, CONFIGURATION)
    assert key == "cloud-provider-config"
    assert yaml.safe_load(configuration["ConfigMap cloud-provider-config"]["data"]["config.yaml"]) == {
        "apiVersion": "local.provider.gardener.cloud/v1alpha1",
        "kind": "CloudProviderConfig",
        "runtimeCluster": {
            "kubeconfig": "/var/run/secrets/gardener.cloud/cloudprovider/kubeconfig",
            "namespace": f"infra-{shoot.namespace}",
        },
        "loadBalancer": {"image": "envoy:1"},
    }
    key, seed = await controlplanes.held(shoot, SEED)
    assert key == "seed-controlplane"
    assert seed.keys() == {
        f"{kind} cloud-controller-manager" for kind in ("ServiceAccount", "Role", "RoleBinding", "Deployment")
    }
    assert _image(seed["Deployment cloud-controller-manager"]) == "cloud-controller-manager-local:newer"
    key, components = await controlplanes.held(shoot, SHOOT)
    assert key == "shoot-system-components"
    assert _image(components["Deployment local-path-provisioner"]) == "local-path-provisioner:newer"
    assert "ClusterRoleBinding system:cloud-controller-manager:service-controller" in components
    assert "Deployment local-path-provisioner" in components
    key, classes = await controlplanes.held(shoot, STORAGE)
    assert key == "shoot-storageclasses"
    assert list(classes) == ["StorageClass default"]
    access = (await controlplanes.secrets(shoot))[CCM]
    assert access.labels == {
        "resources.gardener.cloud/purpose": "token-requestor",
        "resources.gardener.cloud/class": "shoot",
    }


async def test_by_default_the_shoot_gets_access_for_windowbox(world: KindWorld) -> None:
    shoot = await controlplanes.shoot_of(world)
    await shoot.secret("generic-token-kubeconfig", kubeconfig=GENERIC)
    await controlplanes.controlplane(shoot)
    await controlplanes.until_ready(shoot)
    assert (await controlplanes.bundles(shoot)).keys() == {CONFIGURATION, SHOOT, STORAGE}
    _, components = await controlplanes.held(shoot, SHOOT)
    assert "ClusterRoleBinding system:windowbox" in components
    assert not [name for name in components if "cloud-controller-manager" in name]
    found = await controlplanes.secrets(shoot)
    assert CCM not in found
    made = yaml.safe_load(base64.b64decode(found[WINDOWBOX].raw["data"]["kubeconfig"]))
    assert made["clusters"][0]["cluster"] == {
        "server": f"https://kube-apiserver.{shoot.namespace}.svc",
        "certificate-authority-data": "Y2E=",
    }


async def until_applied(shoot: Client) -> None:
    """Create a ControlPlane, and wait until what it puts into the Shoot is there."""
    await controlplanes.controlplane(shoot)
    await controlplanes.until_ready(shoot)
    for name in (SHOOT, STORAGE, CONFIGURATION):
        await shoot.until(MANAGED_RESOURCES, name, _applied)


@pytest.mark.long  # extension/test_extensions.py waits for them, too
@rule("M-5", "B.23")
async def test_a_deletion_waits_for_objects_in_the_shoot(world: KindWorld) -> None:
    shoot = await controlplanes.shoot_of(world)
    async with ResourceManager(shoot).at_work() as at_work:
        await until_applied(shoot)
        assert await shoot.get(CONFIG_MAPS, "cloud-provider-config")
        await at_work.behave(slow=True)
        await shoot.delete(CONTROL_PLANES, "local")

        await shoot.until(CONTROL_PLANES, "local", _waits_for_the_shoot)
        found = await controlplanes.bundles(shoot)
        assert not found[CONFIGURATION].deleting
        assert found[SHOOT].deleting
        assert found[STORAGE].deleting
        await at_work.behave()
        await shoot.until_gone(CONTROL_PLANES, "local")
        await controlplanes.until_no_bundles(shoot)
    assert await controlplanes.secrets(shoot) == {}


@pytest.mark.long  # lifecycle/test_contract_of_kinds.py forces it, others wait for objects
@rule("C-3", "V-11", "C-8")
async def test_a_deletion_goes_on_without_its_cluster_and_can_still_be_forced(world: KindWorld) -> None:
    shoot = await controlplanes.shoot_of(world)
    async with ResourceManager(shoot).at_work() as at_work:
        await until_applied(shoot)
        await at_work.behave(slow=True)
        await shoot.delete(CLUSTERS, shoot.namespace)
        await shoot.delete(CONTROL_PLANES, "local")
        await shoot.until(CONTROL_PLANES, "local", _waits_for_the_shoot)
        assert (await controlplanes.bundles(shoot))[SHOOT].deleting
        await shoot.cluster(cloudProfile={}, metadata=FORCED)
        await shoot.ask(CONTROL_PLANES, "local")
        await shoot.until_gone(CONTROL_PLANES, "local")
        await at_work.behave()
        for name in (SHOOT, STORAGE, CONFIGURATION):
            await shoot.until_gone(MANAGED_RESOURCES, name)


@pytest.mark.long  # lifecycle/test_contract_of_kinds.py migrates a ControlPlane, too
@rule("M-7")
async def test_a_migration_keeps_the_objects_in_the_shoot(world: KindWorld) -> None:
    shoot = await controlplanes.shoot_of(world)
    async with ResourceManager(shoot).at_work():
        await until_applied(shoot)
        system = world.client("kube-system")
        await system.until(DEPLOYMENTS, "local-path-provisioner", lambda found: found is not None)
        await shoot.ask(CONTROL_PLANES, "local", "migrate")
        await shoot.until(CONTROL_PLANES, "local", lambda found: bool(found and not found.finalizers))
        await controlplanes.until_no_bundles(shoot)
        assert await system.get(DEPLOYMENTS, "local-path-provisioner")


@rule("C-10", "F-7", "C-7")
async def test_the_cloud_controller_sleeps_once_the_api_server_does(deploying: KindWorld) -> None:
    shoot = await controlplanes.shoot_of(deploying, spec={"hibernation": {"enabled": True}})
    await shoot.kube.create(DEPLOYMENTS, shoot.namespace, _api_server())
    await controlplanes.controlplane(shoot)
    await controlplanes.until_ready(shoot)
    assert (await _ccm(shoot))["spec"]["replicas"] == 1
    before = await controlplanes.until_ready(shoot)
    old = (await controlplanes.bundles(shoot))[SEED].spec
    await shoot.merge(DEPLOYMENTS, "kube-apiserver", {"spec": {"replicas": 0}})
    await shoot.until(MANAGED_RESOURCES, SEED, lambda found: found is not None and found.spec != old)
    assert (await _ccm(shoot))["spec"]["replicas"] == 0
    await deploying.quiet()
    assert (await controlplanes.until_ready(shoot)).status == before.status
    await shoot.cluster(
        spec={"hibernation": {"enabled": False}, "kubernetes": {"version": "1.36.0"}}, cloudProfile=PROFILE
    )
    await controlplanes.asked(shoot)
    assert (await _ccm(shoot))["spec"]["replicas"] == 1


@rule("B.9", "E-2")
async def test_clusters_of_others_do_no_harm(world: KindWorld) -> None:
    """An odd rotation is ignored, a huge profile and the name of another object are reported."""
    rotation = {"certificateAuthorities": {"lastInitiationTime": 7, "phase": [1]}}
    odd = await controlplanes.shoot_of(world, status={"credentials": {"rotation": rotation}})
    huge = await world.shoot(spec=KUBERNETES, cloudProfile={"spec": {"providerConfig": "x" * 200_000}})
    elsewhere = await controlplanes.shoot_of(world)
    names = {"generic-token-kubeconfig.secret.gardener.cloud/name": "../configmaps/x"}
    await elsewhere.merge(CLUSTERS, elsewhere.namespace, {"metadata": {"annotations": names}})
    for shoot in (huge, elsewhere, odd):
        await controlplanes.controlplane(shoot)
    await controlplanes.until_ready(odd)
    for shoot, text in ((huge, "providerConfig is 'x"), (elsewhere, "cannot be a name in secrets")):
        error = (await shoot.until_failed(CONTROL_PLANES, "local")).status["lastError"]
        assert text in error["description"]
        assert len(error["description"]) < 2500
        assert error["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
        await shoot.delete(CONTROL_PLANES, "local")
        await shoot.until_gone(CONTROL_PLANES, "local")
        assert await controlplanes.bundles(shoot) == {}


def _image(deployment: dict[str, Any]) -> str:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


async def _ccm(shoot: Any) -> dict[str, Any]:
    _, found = await controlplanes.held(shoot, SEED)
    return found["Deployment cloud-controller-manager"]


def _waits_for_the_shoot(found: Any) -> bool:
    return "to be gone" in str(found.last_operation.get("description"))


def _applied(found: Any) -> bool:
    conditions = found.status.get("conditions", []) if found else []
    return any(one["type"] == "ResourcesApplied" and one["status"] == "True" for one in conditions)


def _api_server() -> dict[str, Any]:
    labels = {"app": "kubernetes", "role": "apiserver"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    return {"metadata": {"name": "kube-apiserver", "labels": labels}, "spec": spec}
