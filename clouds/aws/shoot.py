"""Shoots of type aws. Each step ends the check if it finds something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from clouds.aws import infrastructure, worker
from clouds.aws.api import CloudProfileConfig, ControlPlaneConfig, InfrastructureConfig, WorkerConfig
from clouds.frame import featuregates
from clouds.frame.cloud import ShootReview
from clouds.frame.decoding import Config, decode, decode_leniently, decode_shared
from clouds.frame.gardenobjects import Shoot, zones_not_extended
from clouds.frame.problems import Problem, Refused, first_step, invalid, refusing, required
from windowbox.errors import Malformed

_PROVIDER = "spec.provider"
_INFRASTRUCTURE = f"{_PROVIDER}.infrastructureConfig"
_CONTROL_PLANE = f"{_PROVIDER}.controlPlaneConfig"
_WORKERS = f"{_PROVIDER}.workers"

_C = TypeVar("_C", bound=Config)


def problems(review: ShootReview) -> Iterator[Problem]:
    shoot, region = review.shoot, review.shoot.spec.region
    workers = shoot.spec.provider.workers
    stored = _stored(review.old) if review.old else None
    if shoot.spec.provider.infrastructure_config is None:  # AWS-I1
        yield required(_INFRASTRUCTURE, "give an InfrastructureConfig")
        return
    config = _decoded(InfrastructureConfig, shoot.spec.provider.infrastructure_config, _INFRASTRUCTURE)
    images = decode_shared(
        CloudProfileConfig, review.profile.provider_config, "spec.providerConfig of the CloudProfile"
    )
    steps = [infrastructure.zone_problems(stored, config, review.profile, region)]
    if review.old and stored:
        steps += [
            infrastructure.update_problems(stored, config),
            zones_not_extended(review.old.spec.provider.workers, workers, _WORKERS),
        ]
    yield from first_step(
        *steps,
        worker.image_problems(workers, region, images, _WORKERS),
        _networking(shoot),
        infrastructure.problems(config, shoot.spec.networking),
        _control_plane(shoot),
        *(_pool(shoot, i, config) for i in range(len(workers))),
    )


def _stored(old: Shoot) -> InfrastructureConfig:
    given = old.spec.provider.infrastructure_config
    if given is None:
        detail = f"{_INFRASTRUCTURE}: Internal error: InfrastructureConfig is not available on old shoot"
        raise Refused(Problem(_INFRASTRUCTURE, "InternalError", detail))
    try:
        return decode_leniently(InfrastructureConfig, given, _INFRASTRUCTURE)
    except Malformed as error:
        raise Refused(invalid(_INFRASTRUCTURE, None, f"of the stored Shoot: {error}")) from error


def _networking(shoot: Shoot) -> Iterator[Problem]:
    """AWS-N1."""
    networking = shoot.spec.networking
    if networking.nodes is None and "IPv4" in networking.ip_families:
        yield required("spec.networking.nodes", "give the range of nodes, such as 10.250.0.0/16")


def _control_plane(shoot: Shoot) -> Iterator[Problem]:
    given = shoot.spec.provider.control_plane_config
    if given is not None:
        config = _decoded(ControlPlaneConfig, given, _CONTROL_PLANE)
        yield from featuregates.problems(config.cloud_controller_manager, shoot.spec.kubernetes.version)


def _pool(shoot: Shoot, i: int, infra: InfrastructureConfig) -> Iterator[Problem]:
    pool, path = shoot.spec.provider.workers[i], f"{_WORKERS}[{i}]"
    config = None
    if pool.provider_config is not None:
        config = _decoded(WorkerConfig, pool.provider_config, f"{path}.providerConfig")
    yield from worker.problems(pool, [zone.name for zone in infra.networks.zones], config, path)


def _decoded(model: type[_C], given: object, path: str) -> _C:
    """ALL-4: strictly."""
    with refusing(path, "Invalid"):
        return decode(model, given, path)
