"""A ControlPlane on a real API server: what is made for it, waited for, kept and removed."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.api.controlplane.controlplanes import (
    CCM,
    CONFIG_MAPS,
    CONFIGURATION,
    PROFILE,
    SEED,
    SHOOT,
    STORAGE,
    WINDOWBOX,
    asked,
    bundles,
    controlplane,
    held,
    manager,
    secrets,
    shoot_of,
    until_no_bundles,
    until_ready,
)
from tests.support.kindworld import Client, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.gardener.images import BUILT_IN, ImageSource
from windowbox.models.refs import CLUSTERS, CONTROL_PLANES, DEPLOYMENTS, MANAGED_RESOURCES, SECRETS
from windowbox.settings.kindsettings import ControlPlaneSettings, KindSettings

pytestmark = pytest.mark.serves("controlplane")

FORCED = {"annotations": {"confirmation.gardener.cloud/force-deletion": "true"}}
GENERIC = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "shoot",
    "clusters": [
        {
            "name": "shoot",
            "cluster": {"server": "https://kube-apiserver", "certificate-authority-data": "Y2E="},
        }
    ],
    "contexts": [{"name": "shoot", "context": {"cluster": "shoot", "user": "shoot"}}],
    "users": [{"name": "shoot", "user": {"tokenFile": "/var/run/secrets/token"}}],
}


@pytest_asyncio.fixture
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
async def test_the_first_run_makes_all_that_the_contract_says(deploying: KindWorld) -> None:
    shoot = await shoot_of(deploying)
    await controlplane(shoot)
    done = await until_ready(shoot)
    assert done.finalizers == ("extensions.gardener.cloud/controlplane",)
    assert done.last_operation["description"] == "Successfully reconciled ControlPlane"
    assert done.last_operation["type"] == "Create"

    found = await bundles(shoot)
    assert found.keys() == {CONFIGURATION, SEED, SHOOT, STORAGE}
    for name in (CONFIGURATION, SEED):
        assert {k: v for k, v in found[name].spec.items() if k != "secretRefs"} == {
            "class": "seed",
            "keepObjects": False,
        }
    for name in (SHOOT, STORAGE):
        assert {k: v for k, v in found[name].spec.items() if k != "secretRefs"} == {
            "injectLabels": {"shoot.gardener.cloud/no-cleanup": "true"},
            "keepObjects": False,
            "forceOverwriteAnnotations": name == STORAGE,
        }
    key, configuration = await held(shoot, CONFIGURATION)
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
    key, seed = await held(shoot, SEED)
    assert key == "seed-controlplane"
    assert seed.keys() == {
        f"{kind} cloud-controller-manager" for kind in ("ServiceAccount", "Role", "RoleBinding", "Deployment")
    }
    assert _image(seed["Deployment cloud-controller-manager"]) == "cloud-controller-manager-local:newer"
    key, components = await held(shoot, SHOOT)
    assert key == "shoot-system-components"
    assert _image(components["Deployment local-path-provisioner"]) == "local-path-provisioner:newer"
    assert "ClusterRoleBinding system:cloud-controller-manager:service-controller" in components
    assert "Deployment local-path-provisioner" in components
    key, classes = await held(shoot, STORAGE)
    assert key == "shoot-storageclasses"
    assert list(classes) == ["StorageClass default"]
    access = (await secrets(shoot))[CCM]
    assert access.labels == {
        "resources.gardener.cloud/purpose": "token-requestor",
        "resources.gardener.cloud/class": "shoot",
    }


async def test_by_default_the_shoot_gets_access_for_windowbox(world: KindWorld) -> None:
    shoot = await shoot_of(world)
    await shoot.secret("generic-token-kubeconfig", kubeconfig=yaml.safe_dump(GENERIC).encode())
    await controlplane(shoot)
    await until_ready(shoot)
    assert (await bundles(shoot)).keys() == {CONFIGURATION, SHOOT, STORAGE}
    _, components = await held(shoot, SHOOT)
    assert "ClusterRoleBinding system:windowbox" in components
    assert not [name for name in components if "cloud-controller-manager" in name]
    found = await secrets(shoot)
    assert CCM not in found
    made = yaml.safe_load(base64.b64decode(found[WINDOWBOX].raw["data"]["kubeconfig"]))
    assert made["clusters"][0]["cluster"] == {
        "server": f"https://kube-apiserver.{shoot.namespace}.svc",
        "certificate-authority-data": "Y2E=",
    }
    # As the token requestor does it.
    made["users"][0]["user"] = {"token": "given"}
    patch = {"data": {"kubeconfig": base64.b64encode(yaml.safe_dump(made).encode()).decode()}}
    await shoot.merge(SECRETS, WINDOWBOX, patch)
    await asked(shoot)
    later = (await secrets(shoot))[WINDOWBOX]
    assert later.raw["data"] == patch["data"]


@rule("B.9")
async def test_a_missing_configuration_is_an_error_with_a_remedy(world: KindWorld) -> None:
    shoot = await world.shoot()
    await controlplane(shoot)
    failed = await shoot.until_failed(CONTROL_PLANES, "local")
    assert failed.status["lastError"]["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    assert "add a CloudProfileConfig" in failed.status["lastError"]["description"]
    await shoot.delete(CONTROL_PLANES, "local")
    await shoot.until_gone(CONTROL_PLANES, "local")


async def until_applied(shoot: Client) -> None:
    """Create a ControlPlane, and wait until what it puts into the Shoot is there."""
    await controlplane(shoot)
    await until_ready(shoot)
    for name in (SHOOT, STORAGE, CONFIGURATION):
        await shoot.until(MANAGED_RESOURCES, name, _applied)


@rule("M-5", "B.23")
async def test_a_deletion_waits_for_what_is_in_the_shoot(world: KindWorld) -> None:
    shoot = await shoot_of(world)
    async with manager(shoot).at_work() as at_work:
        await until_applied(shoot)
        assert await shoot.get(CONFIG_MAPS, "cloud-provider-config")
        await at_work.behave(slow=True)
        await shoot.delete(CONTROL_PLANES, "local")

        await shoot.until(CONTROL_PLANES, "local", _waits_for_the_shoot)
        found = await bundles(shoot)
        assert not found[CONFIGURATION].deleting
        assert found[SHOOT].deleting
        assert found[STORAGE].deleting
        await at_work.behave()
        await shoot.until_gone(CONTROL_PLANES, "local")
        await until_no_bundles(shoot)
    assert await secrets(shoot) == {}


@rule("C-8")
async def test_a_forced_deletion_waits_for_nothing(world: KindWorld) -> None:
    shoot = await shoot_of(world)
    async with manager(shoot).at_work() as at_work:
        await until_applied(shoot)
        await at_work.behave(slow=True)
        await shoot.cluster(cloudProfile={}, metadata=FORCED)
        await world.quiet()
        await shoot.delete(CONTROL_PLANES, "local")
        await shoot.until_gone(CONTROL_PLANES, "local")
        assert all(one.deleting for one in (await bundles(shoot)).values())
        await at_work.behave()
        for name in (SHOOT, STORAGE, CONFIGURATION):
            await shoot.until_gone(MANAGED_RESOURCES, name)


@rule("C-3", "V-11")
async def test_a_deletion_goes_on_without_its_cluster_and_can_still_be_forced(world: KindWorld) -> None:
    shoot = await shoot_of(world)
    async with manager(shoot).at_work() as at_work:
        await until_applied(shoot)
        await at_work.behave(slow=True)
        await shoot.delete(CLUSTERS, shoot.namespace)
        await shoot.delete(CONTROL_PLANES, "local")
        await shoot.until(CONTROL_PLANES, "local", _waits_for_the_shoot)
        assert (await bundles(shoot))[SHOOT].deleting
        await shoot.cluster(cloudProfile={}, metadata=FORCED)
        await shoot.ask(CONTROL_PLANES, "local")
        await shoot.until_gone(CONTROL_PLANES, "local")
        await at_work.behave()
        for name in (SHOOT, STORAGE, CONFIGURATION):
            await shoot.until_gone(MANAGED_RESOURCES, name)


@rule("M-7", "A.13", "N-2")
async def test_a_migration_leaves_in_the_shoot_what_is_there(world: KindWorld) -> None:
    shoot = await shoot_of(world)
    async with manager(shoot).at_work():
        await controlplane(shoot)
        await until_ready(shoot)
        system = world.client("kube-system")
        await system.until(DEPLOYMENTS, "local-path-provisioner", lambda found: found is not None)
        await shoot.until(MANAGED_RESOURCES, SHOOT, _applied)
        await shoot.ask(CONTROL_PLANES, "local", "migrate")

        def migrated(found: Any) -> bool:
            said = found.last_operation.get("description")
            return said == "Successfully migrated ControlPlane" and not found.finalizers

        await shoot.until(CONTROL_PLANES, "local", migrated)
        await until_no_bundles(shoot)
        assert await system.get(DEPLOYMENTS, "local-path-provisioner")


@rule("C-10", "F-7", "C-7")
async def test_the_cloud_controller_sleeps_once_the_api_server_does(deploying: KindWorld) -> None:
    shoot = await shoot_of(deploying, spec={"hibernation": {"enabled": True}})
    await shoot.kube.create(DEPLOYMENTS, shoot.namespace, _api_server())
    await controlplane(shoot)
    await until_ready(shoot)
    assert (await _ccm(shoot))["spec"]["replicas"] == 1
    before = await shoot.get(CONTROL_PLANES, "local")
    assert before
    old = (await bundles(shoot))[SEED].spec
    await shoot.merge(DEPLOYMENTS, "kube-apiserver", {"spec": {"replicas": 0}})
    await shoot.until(MANAGED_RESOURCES, SEED, lambda found: found is not None and found.spec != old)
    assert (await _ccm(shoot))["spec"]["replicas"] == 0
    await deploying.quiet()
    after = await shoot.get(CONTROL_PLANES, "local")
    assert after
    assert after.status == before.status
    await shoot.cluster(
        spec={"hibernation": {"enabled": False}, "kubernetes": {"version": "1.36.0"}}, cloudProfile=PROFILE
    )
    await asked(shoot)
    assert (await _ccm(shoot))["spec"]["replicas"] == 1


def _image(deployment: dict[str, Any]) -> str:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


async def _ccm(shoot: Any) -> dict[str, Any]:
    _, found = await held(shoot, SEED)
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
