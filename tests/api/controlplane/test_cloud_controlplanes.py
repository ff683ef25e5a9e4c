"""ControlPlanes of clouds: their storage classes, and who serves them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.api.controlplane import controlplanes
from tests.api.controlplane.controlplanes import SHOOT, STORAGE, STORAGE_CLASSES, WINDOWBOX
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.errors import Missing, WindowboxError
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.models.refs import CONTROL_PLANES, Resource
from windowbox.settings.cloudsettings import CloudSettings
from windowbox.settings.kindsettings import ControlPlaneSettings, KindSettings

KINDS = KindSettings(
    clouds=CloudSettings(types=CLOUD_TYPES), controlplane=ControlPlaneSettings(ccm="deployment")
)
pytestmark = [pytest.mark.serves("controlplane", kinds=KINDS), pytest.mark.asyncio(loop_scope="module")]

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
DEFAULT = "storageclass.kubernetes.io/is-default-class"
CLASSES: dict[str, dict[str, tuple[str, dict[str, str]]]] = {
    "alicloud": {
        "default": (
            "diskplugin.csi.alibabacloud.com",
            {
                "csi.storage.k8s.io/fstype": "ext4",
                "type": "cloud_essd",
                "readOnly": "false",
                "encrypted": "true",
            },
        )
    },
    "aws": {"default": ("ebs.csi.aws.com", {"encrypted": "true"})},
    "azure": {
        "default": ("disk.csi.azure.com", {"skuName": "StandardSSD_LRS", "kind": "managed"}),
        "managed-standard-hdd": ("disk.csi.azure.com", {"skuName": "Standard_LRS", "kind": "managed"}),
        "managed-standard-ssd": ("disk.csi.azure.com", {"skuName": "StandardSSD_LRS", "kind": "managed"}),
        "managed-premium-ssd": ("disk.csi.azure.com", {"skuName": "Premium_LRS", "kind": "managed"}),
        "files": ("file.csi.azure.com", {"skuName": "Standard_LRS"}),
    },
    "gcp": {
        "default": ("pd.csi.storage.gke.io", {"type": "pd-balanced"}),
        "gce-sc-hdd": ("pd.csi.storage.gke.io", {"type": "pd-standard"}),
        "gce-sc-fast": ("pd.csi.storage.gke.io", {"type": "pd-ssd"}),
    },
    "openstack": {
        "default": ("cinder.csi.openstack.org", {}),
        "default-class": ("cinder.csi.openstack.org", {}),
    },
}
"""Each cloud's classes: provisioner and parameters."""
UNMANAGED = {
    "aws": {"managedDefaultClass": False},
    "azure": {"managedDefaultStorageClass": False, "managedDefaultVolumeSnapshotClass": False},
    "gcp": {"managedDefaultStorageClass": False, "managedDefaultVolumeSnapshotClass": False},
}


def group(cloud: str) -> str:
    return f"{cloud}.provider.extensions.gardener.cloud/v1alpha1"


async def ready(
    world: KindWorld,
    cloud: str,
    config: dict[str, Any] | None = None,
    profile: dict[str, Any] | None = None,
    **shoot: Any,
) -> Client:
    """A Shoot of a cloud whose ControlPlane is ready."""
    made = await shoot_of(world, cloud, profile, **shoot)
    await controlplane(made, cloud, config)
    await controlplanes.until_ready(made)
    return made


async def shoot_of(
    world: KindWorld, cloud: str, profile: dict[str, Any] | None = None, **shoot: Any
) -> Client:
    about = {"apiVersion": group(cloud), "kind": "CloudProfileConfig", **(profile or {})}
    spec = controlplanes.KUBERNETES | shoot
    return await world.shoot(spec=spec, cloudProfile={"spec": {"providerConfig": about}})


async def controlplane(shoot: Client, cloud: str, config: dict[str, Any] | None = None) -> None:
    spec = {"region": "r", "secretRef": {"name": CLOUDPROVIDER, "namespace": shoot.namespace}, "type": cloud}
    if config is not None:
        spec["providerConfig"] = {"apiVersion": group(cloud), "kind": "ControlPlaneConfig", **config}
    await shoot.create(CONTROL_PLANES, "local", spec)


async def classes(shoot: Client) -> dict[str, dict[str, Any]]:
    """The storage classes, by name."""
    _, made = await controlplanes.held(shoot, STORAGE)
    return {one["metadata"]["name"]: one for one in made.values() if one["kind"] == "StorageClass"}


def is_default(one: dict[str, Any]) -> bool:
    return str(one["metadata"]["annotations"].get(DEFAULT)) == "true"


async def provisioners(shoot: Client) -> list[str]:
    """The names that the Pod in the Shoot serves."""
    _, made = await controlplanes.held(shoot, SHOOT)
    deployment = made["Deployment local-path-provisioner"]
    containers = deployment["spec"]["template"]["spec"]["containers"]
    return [one["command"][one["command"].index("--provisioner-name") + 1] for one in containers]


@pytest.mark.parametrize("cloud", sorted(CLASSES))
async def test_a_shoot_gets_the_storage_classes_of_its_cloud(world: KindWorld, cloud: str) -> None:
    shoot = await ready(world, cloud)
    found = await classes(shoot)
    assert {n: (c["provisioner"], c["parameters"]) for n, c in found.items()} == CLASSES[cloud]
    assert [name for name, one in found.items() if is_default(one)] == ["default"]
    for one in found.values():
        assert one["volumeBindingMode"] == "WaitForFirstConsumer"
        assert one["allowVolumeExpansion"] is True
    drivers = {driver for driver, _ in CLASSES[cloud].values()}
    assert sorted(await provisioners(shoot)) == sorted(drivers)
    # A cloud's Services are served from outside, whatever the setting says.
    assert set(await controlplanes.bundles(shoot)) == {SHOOT, STORAGE}
    assert WINDOWBOX in await controlplanes.secrets(shoot)
    await shoot.delete(CONTROL_PLANES, "local")
    await shoot.until_gone(CONTROL_PLANES, "local")
    await controlplanes.until_no_bundles(shoot)


@rule("EQX-C1")
async def test_a_shoot_of_equinixmetal_has_no_volumes(world: KindWorld) -> None:
    shoot = await ready(world, "equinixmetal", {})
    assert set(await controlplanes.bundles(shoot)) == {SHOOT}
    _, made = await controlplanes.held(shoot, SHOOT)
    assert not [one for one in made if one.startswith("Deployment")]


@pytest.mark.parametrize("cloud", sorted(UNMANAGED))
async def test_default_classes_can_be_left_to_the_user(world: KindWorld, cloud: str) -> None:
    shoot = await ready(world, cloud, {"storage": UNMANAGED[cloud]})
    _, made = await controlplanes.held(shoot, STORAGE)
    assert made["VolumeSnapshotClass default"]["driver"] == CLASSES[cloud]["default"][0]
    for one in made.values():
        assert not [name for name in one["metadata"].get("annotations", {}) if "is-default" in name]


@rule("OST-C8")
async def test_the_profile_replaces_the_classes_of_openstack_and_manila_adds_some(world: KindWorld) -> None:
    given = {"name": "fast", "default": True, "parameters": {"type": "ssd"}, "reclaimPolicy": "Retain"}
    shoot = await ready(
        world,
        "openstack",
        {"loadBalancerProvider": "octavia", "storage": {"csiManila": {"enabled": True}}},
        {"storageClasses": [given, {"name": "slow", "labels": {"a": "b"}}]},
        provider={"type": "openstack", "workers": [{"name": "w", "zones": ["z2", "z1"]}]},
    )
    found = await classes(shoot)
    assert list(found) == ["csi-manila-nfs-z1", "csi-manila-nfs-z2", "fast", "slow"]
    assert [name for name, one in found.items() if is_default(one)] == ["fast"]
    assert (found["fast"]["parameters"], found["fast"]["reclaimPolicy"]) == ({"type": "ssd"}, "Retain")
    assert found["slow"]["metadata"]["labels"] == {"a": "b"}
    assert found["csi-manila-nfs-z1"]["parameters"]["availability"] == "z1"
    assert await provisioners(shoot) == ["cinder.csi.openstack.org", "nfs.manila.csi.openstack.org"]


@rule("ALL-4")
async def test_only_alicloud_reads_a_config_leniently(world: KindWorld) -> None:
    await ready(world, "alicloud", {"zone": "former"})
    shoot = await shoot_of(world, "aws")
    await controlplane(shoot, "aws", {"ipamController": {"enabled": True}})
    failed = await shoot.until_failed(CONTROL_PLANES, "local")
    assert "spec.providerConfig: ipamController is unknown" in failed.status["lastError"]["description"]


async def apply(world: KindWorld, one: dict[str, Any], plural: str) -> None:
    group, _, version = one["apiVersion"].rpartition("/")
    resource = Resource(group, version, plural, one["kind"], namespaced=False)
    await world.kube.apply(resource, "", one["metadata"]["name"], copy.deepcopy(one), owner="test")


async def remove(world: KindWorld, one: dict[str, Any], plural: str) -> None:
    group, _, version = one["apiVersion"].rpartition("/")
    resource = Resource(group, version, plural, one["kind"], namespaced=False)
    await world.kube.remove(resource, "", one["metadata"]["name"])


async def test_an_api_server_takes_the_classes_of_volumes_and_snapshots(world: KindWorld) -> None:
    shoot = await ready(world, "azure")
    _, components = await controlplanes.held(shoot, SHOOT)
    _, made = await controlplanes.held(shoot, STORAGE)
    kind = components["CustomResourceDefinition volumesnapshotclasses.snapshot.storage.k8s.io"]
    plurals = {"StorageClass": "storageclasses", "VolumeSnapshotClass": "volumesnapshotclasses"}
    await apply(world, kind, "customresourcedefinitions")
    try:
        for one in made.values():

            async def taken(one: dict[str, Any] = one) -> bool:
                try:
                    await apply(world, one, plurals[one["kind"]])
                except Missing:  # the kind is new
                    return False
                return True

            await eventually(taken)
        found = await world.kube.get(STORAGE_CLASSES, "", "files")
        assert found.raw["provisioner"] == "file.csi.azure.com"
    finally:
        for one in made.values():
            await remove(world, one, plurals[one["kind"]])
        await remove(world, kind, "customresourcedefinitions")


@rule("ALI-W6")
async def test_claims_of_alicloud_have_20_gi_at_least(world: KindWorld) -> None:
    shoot = await ready(world, "alicloud")
    _, made = await controlplanes.held(shoot, SHOOT)
    policies = {
        "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    }
    ours = [one for one in made.values() if one["kind"] in policies]
    assert len(ours) == 2

    async def claim(size: str, **spec: str) -> str:
        """The refusal, or nothing."""
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"generateName": "claim-"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
                **spec,
            },
        }
        try:
            await world.kube.create(CLAIMS, shoot.namespace, body)
        except WindowboxError as error:
            return str(error)
        return ""

    for one in ours:
        await apply(world, one, policies[one["kind"]])
    try:

        async def refused() -> bool:
            return "smallest disk has 20Gi" in await claim("19Gi")

        await eventually(refused)
        assert await claim("20Gi", storageClassName="default") == ""
        assert await claim("1Gi", storageClassName="other") == ""
    finally:
        for one in ours:
            await remove(world, one, policies[one["kind"]])
    older = await ready(world, "alicloud", kubernetes={"version": "1.29.9"})
    _, made = await controlplanes.held(older, SHOOT)
    assert not [one for one in made.values() if one["kind"] in policies]
