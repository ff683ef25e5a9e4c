"""What clouds look up for their MachineClasses: configs, images, and what is there for nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from clouds.frame.decoding import Config, decode
from clouds.frame.machineimages import ConfigImage, ConfigVersion
from clouds.frame.pools import Site
from windowbox.errors import Malformed
from windowbox.models.gardener.worker import DataVolume, PoolImage, Volume, WorkerPool
from windowbox.models.objects import mapping, mappings

_C = TypeVar("_C", bound=Config)
_V = TypeVar("_V", bound=ConfigVersion)
_DEFAULT_ARCHITECTURE = "amd64"


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
