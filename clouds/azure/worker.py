"""Pools of type azure and their WorkerConfigs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from clouds.azure.api import Image, WorkerConfig
from clouds.frame.gardenobjects import DataVolume, Volume, Worker
from clouds.frame.problems import Problem, invalid, not_supported, required, too_many
from clouds.frame.quantities import negative

_MOST_DATA_VOLUMES = 64
_RESOURCES = ("cpu", "gpu", "memory")


def problems(worker: Worker, zoned: bool, known: Collection[str], path: str) -> Iterator[Problem]:
    """`known` are the zones that have a subnet each; empty if all share one."""
    if worker.volume is None:  # AZU-W1
        yield required(f"{path}.volume", "give a size and a type")
    else:
        yield from _volume(worker.volume, f"{path}.volume")
    if len(worker.data_volumes) > _MOST_DATA_VOLUMES:  # AZU-W3
        yield too_many(f"{path}.dataVolumes", len(worker.data_volumes), _MOST_DATA_VOLUMES)
    for i, volume in enumerate(worker.data_volumes):
        yield from _volume(volume, f"{path}.dataVolumes[{i}]")
    yield from _zones(worker.zones, zoned, known, f"{path}.zones")


def _volume(volume: Volume | DataVolume, path: str) -> Iterator[Problem]:
    if volume.type is None:
        yield required(f"{path}.type", "give a volume type of the CloudProfile")
    if not volume.size:
        yield required(f"{path}.size", "give it, such as 50Gi")
    if volume.encrypted is not None:  # AZU-W2: Azure encrypts all volumes.
        yield not_supported(f"{path}.encrypted", volume.encrypted, ())


def _zones(zones: Sequence[str], zoned: bool, known: Collection[str], path: str) -> Iterator[Problem]:
    """AZU-W4. Zones of a cluster without zones are reported as Required, too."""
    if zoned and not zones:
        yield required(path, "name one zone at least, because the infrastructure is zoned")
        return
    if not zoned and zones:
        yield required(path, "are for zoned infrastructures only: remove them")
        return
    used: set[str] = set()
    for i, zone in enumerate(zones):
        if zone in used:
            yield invalid(f"{path}[{i}]", zone, "is there twice: remove it")
        used.add(zone)
        if known and zone not in known:
            yield invalid(f"{path}[{i}]", zone, "is missing in networks.zones: add it there first")


def config_problems(worker: Worker, config: WorkerConfig, path: str) -> Iterator[Problem]:
    if (template := config.node_template) is not None:
        where = f"{path}.nodeTemplate.capacity"
        if missing := [name for name in _RESOURCES if name not in template.capacity]:
            yield required(where, f"{', '.join(missing)} missing: give all of {', '.join(_RESOURCES)}")
        for name in negative(template.capacity, *_RESOURCES):
            yield invalid(f"{where}.{name}", template.capacity[name], "must not be negative: give 0 or more")
    known = {one.name for one in worker.data_volumes}
    for volume in config.data_volumes:
        # The extension says neither which volume it is, nor the field as it is written.
        if volume.image_ref == Image():
            detail = f"is empty for {volume.name}: name an image, or remove imageRef"
            yield invalid(f"{path}.dataVolumes.ImageRef", {}, detail)
        if volume.name not in known:
            detail = "names no data volume of the pool: correct it"
            yield invalid(f"{path}.dataVolumes.Name", volume.name, detail)
