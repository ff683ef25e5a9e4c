"""ControlPlanes as gardenlet makes them, and what of them is in a cluster."""

from __future__ import annotations

import base64
import re
from typing import Any

import yaml

from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld
from windowbox.models.objects import Object
from windowbox.models.refs import CONTROL_PLANES, MANAGED_RESOURCES, SECRETS, Resource

CONFIGURATION = "extension-controlplane-configuration-seed"
SEED = "extension-controlplane-seed"
SHOOT = "extension-controlplane-shoot"
STORAGE = "extension-controlplane-storageclasses"
WINDOWBOX = "shoot-access-windowbox"
CCM = "shoot-access-cloud-controller-manager"
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)

PROFILE: dict[str, Any] = {
    "spec": {
        "providerConfig": {
            "apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1",
            "kind": "CloudProfileConfig",
            "machineImages": [{"name": "local", "versions": [{"version": "1.0.0", "image": "node:1"}]}],
            "loadBalancer": {"image": "envoy:1"},
        }
    }
}
KUBERNETES = {"kubernetes": {"version": "1.36.0"}}


async def shoot_of(world: KindWorld, name: str = "", **shoot: Any) -> Client:
    shoot["spec"] = KUBERNETES | shoot.get("spec", {})
    return await world.shoot(name, cloudProfile=PROFILE, **shoot)


async def controlplane(shoot: Client, **options: Any) -> Object:
    spec = {"region": "local", "secretRef": {"name": CLOUDPROVIDER, "namespace": shoot.namespace}}
    return await shoot.create(CONTROL_PLANES, "local", spec, **options)


async def until_ready(shoot: Client) -> Object:
    return await shoot.until_ready(CONTROL_PLANES, "local")


async def ready(world: KindWorld, name: str = "", **shoot: Any) -> Client:
    """A new Shoot whose ControlPlane is ready."""
    made = await shoot_of(world, name, **shoot)
    await controlplane(made)
    await until_ready(made)
    return made


async def asked(shoot: Client) -> Object:
    """Ask for a run, and wait until it is done and reported."""
    await shoot.ask(CONTROL_PLANES, "local")
    await until_ready(shoot)
    # Within one second, what was reported before looks like an answer.
    await shoot.world.quiet()
    return await until_ready(shoot)


async def bundles(shoot: Client) -> dict[str, Object]:
    """The ManagedResources of the namespace, by name."""
    page = await shoot.kube.page(MANAGED_RESOURCES._replace(within=shoot.namespace))
    return {one.name: one for one in map(Object, page.items)}


async def until_no_bundles(shoot: Client) -> None:
    """Wait for the ManagedResources that nobody else waits for (Y-1)."""
    for name in await bundles(shoot):
        found = await shoot.get(MANAGED_RESOURCES, name)
        assert found is None or found.deleting
        await shoot.until_gone(MANAGED_RESOURCES, name)


async def secrets(shoot: Client) -> dict[str, Object]:
    """The Secrets of the namespace, but not the provider's credentials."""
    page = await shoot.kube.page(SECRETS._replace(within=shoot.namespace))
    return {one.name: one for one in map(Object, page.items) if one.name != CLOUDPROVIDER}


async def held(shoot: Client, name: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """The key of what a ManagedResource holds, and the objects by kind and name."""
    found = await shoot.kube.get(MANAGED_RESOURCES, shoot.namespace, name)
    (ref,) = found.spec["secretRefs"]
    assert re.fullmatch(rf"{name}-[0-9a-f]{{8}}", ref["name"])
    secret = await shoot.kube.get(SECRETS, shoot.namespace, ref["name"])
    ((key, value),) = secret.raw["data"].items()
    documents = yaml.safe_load_all(base64.b64decode(value))
    return key, {f"{one['kind']} {one['metadata']['name']}": one for one in documents}
