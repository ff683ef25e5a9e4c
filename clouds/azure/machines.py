"""MachineClasses of type azure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from clouds.azure.api import CloudProfileConfig, WorkerConfig
from clouds.frame import inventory, machineclasses
from clouds.frame.machineclasses import Instance, Machine, Machines, text
from clouds.frame.pools import Group, Inputs, Site, class_hash, gigabytes
from windowbox.errors import Malformed
from windowbox.models.gardener.worker import WorkerPool
from windowbox.models.objects import mapping, mappings

_ILLEGAL_IN_TAGS = re.compile(r"[<>%\\&?/ ]")
_ZONE = re.compile(r"\d{1,9}", re.ASCII)
_CONFIDENTIAL = ("standard_dc", "standard_ec")
"""How the names of machine types begin whose memory is encrypted."""
_CLOUDS = {"usgov": "Government", "usdod": "Government", "ussec": "Government", "china": "China"}
"""Which cloud a region is in, by the head of its name; all others are in the public one."""
_INFRASTRUCTURE = "spec.provider.infrastructureConfig"
_LOCATIONS = ("urn", "communityGalleryImageID", "sharedGalleryImageID", "id")
"""Where an image may be. The first that is given counts."""


def groups(pool: WorkerPool, site: Site, raw_config: str, image: Mapping[str, Any]) -> Iterator[Group]:
    """A group for each zone, or one for all machines of a cluster without zones."""
    if not site.infrastructure.get("zoned"):
        yield _group_without_zone(pool, site, raw_config, image)
        return
    config, zones = machineclasses.worker_config(WorkerConfig, pool), pool.zones or []
    for i, zone in enumerate(zones):
        subnet, _ = _subnet(site, zone)
        suffix = class_hash(pool, site, raw_config, hash_inputs(pool, site, zone))
        name = f"{site.namespace}-{pool.name}"
        place = {"zone": _number(zone)}
        spec = _provider_spec(pool, config, site, image, subnet, place, is_fast=_is_fast(pool, site, image))
        labels = {"topology.disk.csi.azure.com/zone": f"{site.region}-{zone}"}
        template = _node_template(pool, site, config, f"{site.region}-{zone}")
        class_name = f"{name}-{suffix}-z{zone}"
        yield Group(pool, f"{name}-z{zone}", class_name, zone, i, len(zones), spec, labels, template)


def used_image(pool: WorkerPool, site: Site) -> dict[str, Any]:
    """The image of a pool as the status of the Worker lists it (ALL-Z6). Malformed if there is none."""
    wanted, architecture = machineclasses.image_and_architecture(pool)
    config = machineclasses.profile_config(CloudProfileConfig, site)
    for one in machineclasses.versions(config.machine_images, wanted):
        if one.architecture == architecture:
            return {"name": wanted.name, **one.model_dump(by_alias=True, exclude_none=True)}
    found = machineclasses.used_before(site.used_images, wanted, architecture)
    if found is None:
        raise machineclasses.unknown_image(wanted, architecture)
    return {**found, "architecture": architecture}


def _group_without_zone(pool: WorkerPool, site: Site, raw_config: str, image: Mapping[str, Any]) -> Group:
    """AZU-W5: each pool has its own scale set, or all pools of an old cluster share an availability set."""
    config = machineclasses.worker_config(WorkerConfig, pool)
    subnet = str(machineclasses.for_nodes(_networks(site).get("subnets"), "subnet")["name"])
    if (scale_set := _scale_set(pool, site)) is not None:
        machine_set = {"id": scale_set["id"], "kind": "vmo"}
    else:
        found = machineclasses.for_nodes(site.infrastructure["availabilitySets"], "availability set")
        machine_set = {"id": found["id"], "kind": "availabilityset"}
    suffix = class_hash(pool, site, raw_config, hash_inputs(pool, site))
    # Machines of one availability set have to be alike, and its first ones had no fast network (AZU-W6).
    is_fast = scale_set is not None and _is_fast(pool, site, image)
    place = {"machineSet": machine_set}
    spec = _provider_spec(pool, config, site, image, subnet, place, is_fast=is_fast)
    # The field is required, and the empty text would become null.
    template = _node_template(pool, site, config, "no-zone")
    name = f"{site.namespace}-{pool.name}"
    return Group(pool, name, f"{name}-{suffix}", "", 0, 1, spec, {}, template)


def _scale_set(pool: WorkerPool, site: Site) -> Mapping[str, Any] | None:
    """AZU-W5: that of the pool; None in an old cluster with an availability set."""
    if _has_availability_set(site):
        return None
    found = [one for one in site.dependencies if one.get("poolName") == pool.name]
    if len(found) != 1:
        detail = "reconcile the Worker" if not found else "remove all but one"
        raise Malformed(f"pool {pool.name!r:.80} has {len(found)} vmoDependencies instead of one: {detail}")
    return found[0]


def _has_availability_set(site: Site) -> bool:
    return bool(site.infrastructure.get("availabilitySets") and not site.infrastructure.get("migratingToVMO"))


def _networks(site: Site) -> Mapping[str, Any]:
    return mapping(site.infrastructure.get("networks"))


def _subnet(site: Site, zone: str) -> tuple[str, bool]:
    """The subnet of a zone, and whether it was made for that zone, so that machines had to move there."""
    networks = _networks(site)
    is_own = networks.get("layout") == "MultipleSubnet"
    found = machineclasses.for_nodes(networks.get("subnets"), "subnet", zone if is_own else None)
    return str(found["name"]), is_own and not found.get("migrated")


def hash_inputs(pool: WorkerPool, site: Site, zone: str = "") -> Inputs:
    """AZU-W7."""
    before: dict[str, str] = {}
    for one in machineclasses.by_name(pool.data_volumes):
        before |= machineclasses.inputs(f"dataVolumes[{one.name}]", size=one.size, type=one.type)
    if identity := mapping(site.infrastructure.get("identity")):
        before[f"{_INFRASTRUCTURE}.identity"] = str(identity["id"])
    if not site.infrastructure.get("zoned"):
        if (scale_set := _scale_set(pool, site)) is not None:
            before["CloudProfile.countFaultDomains"] = str(scale_set["name"])
    else:
        subnet, is_own = _subnet(site, zone)
        if is_own:
            before[f"{_INFRASTRUCTURE}.networks.zones[{zone}]"] = subnet
    profile = machineclasses.worker_config(WorkerConfig, pool).diagnostics_profile
    of_profile = machineclasses.inputs(
        "providerConfig.diagnosticsProfile", storageURI=profile and profile.storage_uri
    )
    return Inputs(before, before | of_profile)


def _is_fast(pool: WorkerPool, site: Site, image: Mapping[str, Any]) -> bool:
    """AZU-W6: whether both image and machine type have accelerated networking."""
    config = machineclasses.profile_config(CloudProfileConfig, site)
    types = (one for one in config.machine_types if one.name == pool.machine_type)
    return bool(image.get("acceleratedNetworking")) and any(one.accelerated_networking for one in types)


def _number(zone: str) -> int:
    if not _ZONE.fullmatch(zone):
        raise Malformed(f"zone {zone!r:.80} is no number: write 1, 2 or 3")
    return int(zone)


def _node_template(pool: WorkerPool, site: Site, config: WorkerConfig, zone: str) -> dict[str, Any] | None:
    template = config.node_template
    capacity = template.capacity if template is not None else machineclasses.capacity_of(pool)
    # Without a template of the pool, that of the config does not count.
    return machineclasses.node_template(pool, site, zone, capacity) if pool.node_template else None


def _provider_spec(
    pool: WorkerPool,
    config: WorkerConfig,
    site: Site,
    image: Mapping[str, Any],
    subnet: str,
    place: Mapping[str, Any],
    *,
    is_fast: bool,
) -> dict[str, Any]:
    vnet = mapping(_networks(site).get("vnet"))
    group = vnet.get("resourceGroup")
    cloud = next((one for head, one in _CLOUDS.items() if site.region.lower().startswith(head)), "Public")
    return {
        "location": site.region,
        "resourceGroup": machineclasses.needed(site.infrastructure, "resourceGroup", "name"),
        "cloudConfiguration": {"name": f"Azure{cloud}"},
        "subnetInfo": {
            "vnetName": machineclasses.needed(vnet, "name"),
            **machineclasses.given(vnetResourceGroup=group),
            "subnetName": subnet,
        },
        "properties": {
            **_properties(pool, config, site, image),
            **place,
            **({"networkProfile": {"acceleratedNetworking": True}} if is_fast else {}),
        },
        "tags": {
            "Name": site.namespace,
            _tag(f"kubernetes.io-cluster-{site.namespace}"): "1",
            "kubernetes.io-role-node": "1",
            **{_tag(name): value for name, value in (pool.labels or {}).items()},
        },
    }


def _properties(
    pool: WorkerPool, config: WorkerConfig, site: Site, image: Mapping[str, Any]
) -> dict[str, Any]:
    key = {"path": "/home/core/.ssh/authorized_keys", "keyData": site.ssh_public_key}
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": pool.machine_type},
        "osProfile": {
            "adminUsername": "core",
            "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": key}},
        },
        "storageProfile": _storage(pool, config, image),
    }
    if identity := mapping(site.infrastructure.get("identity")):
        properties["identityID"] = identity["id"]
    if (profile := config.diagnostics_profile) is not None:
        properties["diagnosticsProfile"] = {
            "enabled": profile.enabled,
            **machineclasses.given(storageURI=profile.storage_uri),
        }
    if _is_confidential(pool):
        properties["securityProfile"] = {
            "securityType": "ConfidentialVM",
            "uefiSettings": {"vtpmEnabled": True},
        }
    return properties


def _is_confidential(pool: WorkerPool) -> bool:
    """AZU-W8."""
    return pool.machine_type.lower().startswith(_CONFIDENTIAL)


def _storage(pool: WorkerPool, config: WorkerConfig, image: Mapping[str, Any]) -> dict[str, Any]:
    root = machineclasses.root_volume(pool)
    reference = _reference(image)
    if not reference:
        raise Malformed(f"image {image['name']!r:.80} has no location: give one of {', '.join(_LOCATIONS)}")
    if "urn" in reference and image.get("skipMarketplaceAgreement"):
        reference["skipMarketplaceAgreement"] = True
    managed = machineclasses.given(storageAccountType=root.type)
    if _is_confidential(pool):
        managed["securityProfile"] = {"securityEncryptionType": "VMGuestStateOnly"}
    storage: dict[str, Any] = {
        "imageReference": reference,
        "osDisk": {
            "caching": "None",
            "diskSizeGB": gigabytes(root.size),
            "managedDisk": managed,
            "createOption": "FromImage",
        },
    }
    if disks := _data_disks(pool, config):
        storage["dataDisks"] = disks
    return storage


def _reference(image: Mapping[str, Any]) -> dict[str, Any]:
    return next(({name: image[name]} for name in _LOCATIONS if image.get(name) is not None), {})


def _data_disks(pool: WorkerPool, config: WorkerConfig) -> list[dict[str, Any]]:
    """The data disks in the order of their names."""
    disks = []
    for i, volume in enumerate(machineclasses.by_name(pool.data_volumes)):
        disk = {"name": volume.name, "lun": i, "diskSizeGB": gigabytes(volume.size), "caching": "None"}
        disk |= machineclasses.given(storageAccountType=volume.type)
        for one in config.data_volumes:
            if one.name == volume.name and one.image_ref is not None:
                disk["imageRef"] = _reference(one.image_ref.model_dump(by_alias=True))
        disks.append(disk)
    return disks


def _tag(name: str) -> str:
    return _ILLEGAL_IN_TAGS.sub("_", name.lower())


def dependency(pool: WorkerPool, site: Site) -> dict[str, Any] | None:
    """AZU-W5: the scale set of a pool. Another number of fault domains needs another one."""
    if site.infrastructure.get("zoned") or _has_availability_set(site):
        return None
    config = machineclasses.profile_config(CloudProfileConfig, site)
    domains = next((one.count for one in config.count_fault_domains if one.region == site.region), None)
    if domains is None:
        raise Malformed(
            f"countFaultDomains of the CloudProfile has no entry for region {site.region!r:.80}: add one"
        )
    group = machineclasses.needed(site.infrastructure, "resourceGroup", "name")
    subscription = site.credentials.get("subscription", "")
    digest = inventory.digest(subscription, str(group), pool.name, str(domains))
    name = f"vmo-{pool.name}-{digest[:8]}"
    path = f"/subscriptions/{subscription}/resourceGroups/{group}"
    id_ = f"{path}/providers/Microsoft.Compute/virtualMachineScaleSets/{name}"
    return {"poolName": pool.name, "id": id_, "name": name}


def instance(spec: Mapping[str, Any], template: Mapping[str, Any], machine: Machine) -> Instance:
    """ALL-Z7, AZU-X1."""
    location, zone = text(spec, "location"), mapping(spec.get("properties")).get("zone")
    storage = mapping(mapping(spec.get("properties")).get("storageProfile"))
    disks = [_location(mapping(one.get("imageRef"))) for one in mappings(storage.get("dataDisks"))]
    return Instance(
        provider_id=f"azure:///{location}/{machine.name}",
        image=_location(mapping(storage.get("imageReference"))),
        type=text(spec, "properties", "hardwareProfile", "vmSize"),
        region=location,
        zone=str(zone) if isinstance(zone, int) else "",
        zone_label=f"{location}-{zone}" if isinstance(zone, int) else "0",
        sources=tuple(one for one in disks if one),
    )


def _location(reference: Mapping[str, Any]) -> str:
    return next((found for name in _LOCATIONS if (found := text(reference, name))), "")


MACHINES = Machines(
    provider="Azure",
    groups=groups,
    used_image=used_image,
    instance=instance,
    unknown_image="",
    dependency=dependency,
    dependencies="vmoDependencies",
)
