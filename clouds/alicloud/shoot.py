"""Shoots of type alicloud. Each step ends the check if it finds something."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from clouds.alicloud import infrastructure
from clouds.alicloud.api import ControlPlaneConfig, InfrastructureConfig
from clouds.frame import featuregates
from clouds.frame.cidrs import Cidr
from clouds.frame.cloud import ShootReview
from clouds.frame.decoding import decode, decode_leniently
from clouds.frame.gardenobjects import DataVolume, Networking, Shoot, Volume, Worker, zones_not_extended
from clouds.frame.problems import (
    Problem,
    Refused,
    first_step,
    forbidden,
    invalid,
    listing,
    required,
    too_long,
    too_many,
    unchanged,
)
from windowbox.errors import Malformed

_INFRASTRUCTURE = "spec.provider.infrastructureConfig"
_CONTROL_PLANE = "spec.provider.controlPlaneConfig"
_WORKERS = "spec.provider.workers"
_RESERVED = Cidr("100.64.0.0/10", "the range that Alicloud reserves")
_DISK_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9.\-_:]+", re.ASCII)
_LONGEST_NAME = 64
_MOST_DATA_VOLUMES = 64


def problems(review: ShootReview) -> Iterator[Problem]:
    shoot, spec = review.shoot, review.shoot.spec
    config, control_plane = _infrastructure(shoot, strict=True), _control_plane(shoot)
    steps: list[Iterator[Problem]] = []
    if review.old:
        old = review.old.spec
        steps = [
            infrastructure.update_problems(_infrastructure(review.old, strict=False), config),
            zones_not_extended(old.provider.workers, spec.provider.workers, _WORKERS),
            _networking_update(old.networking, spec.networking),
        ]
    zones = frozenset(zone.name for zone in config.networks.zones)
    steps += [
        infrastructure.problems(config, spec.networking),
        _pools(spec.provider.workers, zones),
        featuregates.problems(control_plane.cloud_controller_manager, spec.kubernetes.version),
    ]
    if review.old is None:
        steps.append(_networking(spec.networking))
    yield from first_step(*steps)


def _infrastructure(shoot: Shoot, *, strict: bool) -> InfrastructureConfig:
    """ALI-I1."""
    given = shoot.spec.provider.infrastructure_config
    if given is None:
        raise Refused(required(_INFRASTRUCTURE, "give an InfrastructureConfig"))
    try:
        return (decode if strict else decode_leniently)(InfrastructureConfig, given, _INFRASTRUCTURE)
    except Malformed as error:
        raise Refused(forbidden(_INFRASTRUCTURE, str(error))) from error


def _networking(networking: Networking) -> Iterator[Problem]:
    """ALI-N1, ALI-N2: what is no range counts as one that meets the reserved one."""
    if networking.nodes is None:
        yield required("spec.networking.nodes", "give the range of nodes, such as 10.250.0.0/16")
    for one in networking.ranges("spec.networking"):
        if one is not None and (not one.is_range or _RESERVED.meets(one)):
            detail = f"must not overlap with {_RESERVED.text}, it is reserved by Alicloud: use another range"
            yield invalid(one.path, one.text, detail)


def _networking_update(old: Networking, new: Networking) -> Iterator[Problem]:
    """ALI-N3."""
    for one in old.ranges("spec.networking"):
        if one is not None and one.is_range:
            yield from unchanged(one.path, getattr(new, one.path.rpartition(".")[2]), one.text)


def _pools(workers: Sequence[Worker], zones: frozenset[str]) -> Iterator[Problem]:
    for i, worker in enumerate(workers):
        path = f"{_WORKERS}[{i}]"
        if worker.volume is None:  # ALI-W1
            yield required(f"{path}.volume", "give a size and a type")
        else:
            yield from _volume(worker.volume, f"{path}.volume")
        if len(worker.data_volumes) > _MOST_DATA_VOLUMES:  # ALI-W2
            yield too_many(f"{path}.dataVolumes", len(worker.data_volumes), _MOST_DATA_VOLUMES)
        for j, volume in enumerate(worker.data_volumes):
            where = f"{path}.dataVolumes[{j}]"
            if not _DISK_NAME.fullmatch(volume.name):
                detail = "has to be a letter, followed by letters, digits and `.-_:`"
                yield invalid(f"{where}.name", volume.name, detail)
            elif len(volume.name) > _LONGEST_NAME:
                yield too_long(f"{where}.name", _LONGEST_NAME)
            yield from _volume(volume, where)
        if not worker.zones:  # ALI-W3
            yield required(f"{path}.zones", "name one zone at least")
        for j, zone in enumerate(worker.zones):
            if zone not in zones:
                detail = f"supported values {listing(zones)}: add it to networks.zones first"
                yield invalid(f"{path}.zones[{j}]", zone, detail)


def _volume(volume: Volume | DataVolume, path: str) -> Iterator[Problem]:
    if volume.type is None:
        yield required(f"{path}.type", "give a volume type of the CloudProfile")
    if not volume.size:
        yield required(f"{path}.size", "give it, such as 50Gi")


def _control_plane(shoot: Shoot) -> ControlPlaneConfig:
    """Leniently (ALL-4): Shoots may still have a `zone`."""
    given = shoot.spec.provider.control_plane_config
    if given is None:
        return ControlPlaneConfig()
    try:
        return decode_leniently(ControlPlaneConfig, given, _CONTROL_PLANE)
    except Malformed as error:
        raise Refused(Problem(_CONTROL_PLANE, "Invalid", str(error))) from error
