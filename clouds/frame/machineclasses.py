"""What clouds make of a Worker and of its machines, and what they look up for their MachineClasses. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from clouds.frame.decoding import Config, decode
from clouds.frame.machineimages import ConfigImage, ConfigVersion
from clouds.frame.pools import Group, Site
from windowbox.errors import Malformed
from windowbox.models.gardener.worker import DataVolume, PoolImage, Volume, WorkerPool
from windowbox.models.objects import mapping, mappings

Json = dict[str, Any]

_C = TypeVar("_C", bound=Config)
_V = TypeVar("_V", bound=ConfigVersion)
_DEFAULT_ARCHITECTURE = "amd64"
_ESCAPED = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})
"""What Go escapes in JSON."""


class Machine(NamedTuple):
    """A Machine, for which a cloud makes an instance."""

    owner: str
    """The technical id of its Shoot."""
    name: str
    credentials: Mapping[str, str]
    """What ids may contain of the cloud's Secret."""


@dataclass(frozen=True)
class Instance:
    """What a MachineClass asks a cloud for."""

    provider_id: str
    image: str
    type: str
    region: str
    zone: str = ""
    """As pools name it. Empty if the class names none."""
    zone_label: str = ""
    """As a cloud controller spells it, where that is not the same."""
    sources: tuple[str, ...] = ()
    """Images of data disks that have to exist, too."""
    reservations: tuple[str, ...] = ()
    """The first of them that is free is used."""
    reserved_only: bool = False
    """Whether it is an error if none is free."""


def nothing(pool: WorkerPool, site: Site) -> Json | None:
    """For clouds whose pools have nothing of their own."""
    return None


@dataclass(frozen=True)
class Machines:
    """How a cloud serves Workers and Machines."""

    provider: str
    """Of its MachineClasses: the type of the cloud, in its own spelling."""
    groups: Callable[[WorkerPool, Site, str, Mapping[str, Any]], Iterator[Group]]
    """The groups of a pool, whose WorkerConfig is spelled like this, and whose image is this."""
    used_image: Callable[[WorkerPool, Site], Json]
    """The image of a pool, as the status lists it. Malformed if there is none."""
    instance: Callable[[Mapping[str, Any], Mapping[str, Any], Machine], Instance]
    """What a class asks for, by its `providerSpec` and its `nodeTemplate`."""
    unknown_image: str
    """The cloud's error for an image that it does not have. Empty: its machines are never created."""
    dependency: Callable[[WorkerPool, Site], Json | None] = nothing
    """What a pool as a whole has, such as a server group. The same for the same pool, for repeated runs."""
    dependencies: str = ""
    """The field of the status that lists them."""
    escapes_versions: bool = True
    """Whether `+` in a version of an image becomes `_` in labels."""


class Planned(NamedTuple):
    provider: str
    """Of its MachineClasses."""
    groups: list[Group]
    provider_status: Json
    """`status.providerStatus` of the Worker, as a merge patch."""


def plan(type_: str, machines: Machines, pools: Sequence[WorkerPool], site: Site) -> Planned:
    """The groups of all pools of a Worker of that type. Malformed if no machines can be made of them."""
    depend = [one for pool in pools if (one := machines.dependency(pool, site)) is not None]
    site, groups, images = replace(site, dependencies=depend), list[Group](), list[Json]()
    for pool in pools:
        image = machines.used_image(pool, site)
        if image not in images:
            images.append(image)
        labels = _operating_system(machines, pool)
        found = machines.groups(pool, site, spelled(pool.provider_config), image)
        groups += [replace(one, class_labels=labels) for one in found]
    status: Json = {
        "apiVersion": f"{type_}.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "WorkerStatus",
        "machineImages": images,
    }
    if machines.dependencies:
        status[machines.dependencies] = depend or None
    return Planned(machines.provider, groups, status)


def spelled(config: Mapping[str, Any] | None) -> str:
    """A config as an API server spells it, which is what the original hashes. Empty if there is none."""
    if config is None:
        return ""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.translate(_ESCAPED)


def _operating_system(machines: Machines, pool: WorkerPool) -> dict[str, str]:
    """The labels of a MachineClass (ALL-Z8)."""
    image = pool.machine_image
    if image is None or not (image.name and image.version):
        return {}
    version = image.version.replace("+", "_") if machines.escapes_versions else image.version
    return {"operatingSystemName": image.name, "operatingSystemVersion": version}


_IMAGE_FIELDS = frozenset(
    ("ami", "id", "image", "urn", "communityGalleryImageID", "sharedGalleryImageID", "ipxeScriptUrl")
)


def known_images(*listing: object) -> set[str]:
    """The images that the `machineImages` of configs and statuses list, in the cloud's words."""
    found, left = set[str](), list[Mapping[str, Any]]()
    for one in listing:
        left += mappings(mapping(one).get("machineImages"))
    while left:
        one = left.pop()
        for name, value in one.items():
            if isinstance(value, str) and name in _IMAGE_FIELDS:
                found.add(value)
            left += mappings(value)
    return found


def text(found: Mapping[str, Any], *path: str) -> str:
    """The text at this path of a providerSpec, which may have any form. Empty if there is none."""
    value: object = found
    for name in path:
        value = mapping(value).get(name)
    return value if isinstance(value, str) else ""


def worker_config(model: type[_C], pool: WorkerPool) -> _C:
    """The config of a pool. A pool without one has the defaults."""
    given, where = pool.provider_config, f"providerConfig of pool {pool.name!r:.80}"
    return decode(model, given, where, kind_optional=True) if given is not None else model()


def profile_config(model: type[_C], site: Site) -> _C:
    """The config of the CloudProfile. Images of a profile without one may still be in the Worker's status."""
    given = mapping(site.profile.get("spec")).get("providerConfig")
    where = "spec.providerConfig of the CloudProfile"
    return decode(model, given, where, kind_optional=True) if given is not None else model()


def image_and_architecture(pool: WorkerPool) -> tuple[PoolImage, str]:
    if pool.machine_image is None:
        raise Malformed(f"machineImage of pool {pool.name!r:.80} is missing: give a name and a version")
    return pool.machine_image, pool.architecture or _DEFAULT_ARCHITECTURE


def versions(images: Sequence[ConfigImage[_V]], wanted: PoolImage) -> Iterator[_V]:
    """What the config of a CloudProfile says of an image: an entry, or one for each architecture."""
    for image in images:
        if image.name == wanted.name:
            yield from (one for one in image.versions if one.version == wanted.version)


def used_before(
    images: Iterable[Mapping[str, Any]], wanted: PoolImage, architecture: str, unnamed: str | None = None
) -> dict[str, Any] | None:
    """The image in a status (ALL-Z6). `unnamed` is the architecture of entries that name none."""
    for one in images:
        same = (one.get("name"), one.get("version")) == (wanted.name, wanted.version)
        if same and (one.get("architecture") or unnamed or _DEFAULT_ARCHITECTURE) == architecture:
            return dict(one)
    return None


def unknown_image(wanted: PoolImage, *more: str) -> Malformed:
    which = "/".join([wanted.name, wanted.version, *more])
    where = "neither in cloud profile nor in worker status: add it to the CloudProfile"
    return Malformed(f"could not find machine image for {which} {where}")


def needed(found: Mapping[str, Any], *path: str) -> Any:
    """What the Infrastructure's status has at this path. Malformed if that is nothing."""
    value: Any = found
    for name in path:
        value = mapping(value).get(name)
    if value in (None, ""):
        raise Malformed(f"infrastructureProviderStatus has no {'.'.join(path)}: reconcile the Infrastructure")
    return value


def for_nodes(found: object, what: str, zone: str | None = None) -> Mapping[str, Any]:
    """The first of a list in the Infrastructure's status that is for nodes, in the zone if one is given."""
    for one in mappings(found):
        if one.get("purpose") == "nodes" and zone in (None, one.get("zone")):
            return one
    if zone is None:
        raise Malformed(f"infrastructureProviderStatus has no {what} for nodes: reconcile the Infrastructure")
    raise Malformed(
        f"infrastructureProviderStatus has no {what} for nodes in zone {zone!r:.80}: "
        "add the zone to networks.zones"
    )


def root_volume(pool: WorkerPool) -> Volume:
    if pool.volume is None:
        raise Malformed(f"volume of pool {pool.name!r:.80} is missing: give a size and a type")
    return pool.volume


def by_name(volumes: Sequence[DataVolume] | None) -> list[DataVolume]:
    return sorted(volumes or (), key=lambda one: one.name)


def given(**values: Any) -> dict[str, Any]:
    """Those of the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def inputs(path: str, **values: Any) -> dict[str, str]:
    """Those of the values that are not None, for the hash: by their paths, and as Go prints them."""
    return {
        f"{path}.{name}": str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value is not None
    }


def volume_inputs(pool: WorkerPool) -> dict[str, str]:
    """The part of volumes in the hash, where a cloud has them all encrypted or not."""
    found = inputs("volume", encrypted=pool.volume and pool.volume.encrypted)
    for one in pool.data_volumes or []:
        found |= inputs(f"dataVolumes[{one.name}]", size=one.size, type=one.type, encrypted=one.encrypted)
    return found


def node_template(
    pool: WorkerPool, site: Site, zone: str, capacity: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """What an autoscaler is to expect of a machine of a pool that has none (ALL-Z8)."""
    if not capacity:
        return None
    return {
        "architecture": pool.architecture or _DEFAULT_ARCHITECTURE,
        "capacity": dict(capacity),
        "instanceType": pool.machine_type,
        "region": site.region,
        "zone": zone,
    }


def capacity_of(pool: WorkerPool) -> dict[str, Any]:
    return dict(pool.node_template.capacity) if pool.node_template else {}
