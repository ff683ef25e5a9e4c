"""Shoots of type azure. All problems are collected once the configs can be read."""

from __future__ import annotations

from collections.abc import Iterator

from clouds.azure import infrastructure, worker
from clouds.azure.api import ControlPlaneConfig, InfrastructureConfig, WorkerConfig
from clouds.frame import featuregates
from clouds.frame.cloud import ShootReview
from clouds.frame.decoding import decode, decode_leniently
from clouds.frame.gardenobjects import Networking, Shoot, Worker, families_other_than_ipv4, zones_not_extended
from clouds.frame.problems import Problem, Refused, forbidden, invalid, refusing, required
from windowbox.errors import Malformed

_PROVIDER = "spec.provider"
_INFRASTRUCTURE = f"{_PROVIDER}.infrastructureConfig"
_CONTROL_PLANE = f"{_PROVIDER}.controlPlaneConfig"
_WORKERS = f"{_PROVIDER}.workers"
_NETWORKING = "spec.networking"
_MIGRATION = "migration.azure.provider.extensions.gardener.cloud/vmo"
"""Annotation of Shoots that move from an availability set to scale sets."""


def problems(review: ShootReview) -> Iterator[Problem]:
    shoot, spec, profile = review.shoot, review.shoot.spec, review.profile
    if spec.provider.infrastructure_config is None:
        raise Refused(required(_INFRASTRUCTURE, "give an InfrastructureConfig"))
    with refusing(_INFRASTRUCTURE, "Forbidden"):
        infra = decode(InfrastructureConfig, spec.provider.infrastructure_config, _INFRASTRUCTURE)
    stored = _stored(review.old) if review.old else None
    control_plane = ControlPlaneConfig()
    if spec.provider.control_plane_config is not None:
        control_plane = decode(ControlPlaneConfig, spec.provider.control_plane_config, _CONTROL_PLANE)

    if review.old and stored:
        yield from infrastructure.update_problems(stored, infra)
        yield from zones_not_extended(review.old.spec.provider.workers, spec.provider.workers, _WORKERS)
    yield from _networking(spec.networking)
    yield from infrastructure.unknown_zones(stored, infra, profile.zones(spec.region))
    migrates = shoot.metadata.annotations.get(_MIGRATION) == "true"
    yield from infrastructure.problems(infra, spec.networking, migrates=migrates)
    yield from featuregates.problems(control_plane.cloud_controller_manager, spec.kubernetes.version)
    subnets = frozenset(str(zone.name) for zone in infra.zones)
    for i, pool in enumerate(spec.provider.workers):
        yield from worker.problems(pool, infra.zoned, subnets, f"{_WORKERS}[{i}]")
    for i, pool in enumerate(spec.provider.workers):
        if pool.provider_config is not None:
            yield from _worker_config(pool, f"{_WORKERS}[{i}].providerConfig")


def _stored(old: Shoot) -> InfrastructureConfig:
    given = old.spec.provider.infrastructure_config
    if given is None:
        detail = f"{_INFRASTRUCTURE}: Internal error: InfrastructureConfig is not available on old shoot"
        raise Refused(Problem(_INFRASTRUCTURE, "InternalError", detail))
    with refusing(_INFRASTRUCTURE, "Forbidden"):
        return decode_leniently(InfrastructureConfig, given, f"{_INFRASTRUCTURE} of the stored Shoot")


def _networking(networking: Networking) -> Iterator[Problem]:
    if networking.nodes is None:  # AZU-N1
        yield required(f"{_NETWORKING}.nodes", "give the range of nodes, such as 10.250.0.0/16")
    if networking.type == "calico" and networking.provider_config is not None:
        yield from _calico(networking.provider_config, f"{_NETWORKING}.providerConfig")
    yield from families_other_than_ipv4(networking)  # AZU-N3


def _calico(config: object, path: str) -> Iterator[Problem]:
    """AZU-N2. The extension crashes if it is not said whether the overlay is on: here that is an error."""
    if not isinstance(config, dict):
        yield Problem(path, "InternalError", f"{path}: Internal error: has to be an object")
    elif isinstance(overlay := config.get("overlay"), dict):
        where, enabled = f"{path}.overlay.enabled", overlay.get("enabled")
        if not isinstance(enabled, bool):
            yield invalid(where, enabled, "has to be true or false: set it to false, or remove overlay")
        elif enabled:
            yield forbidden(where, "calico has no overlay on Azure: set it to false")


def _worker_config(pool: Worker, path: str) -> Iterator[Problem]:
    try:
        config = decode(WorkerConfig, pool.provider_config, path)
    except Malformed as error:
        yield Problem(path, "Invalid", str(error))
        return
    yield from worker.config_problems(pool, config, path)
