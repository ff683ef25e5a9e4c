"""Shoots of type gcp. All problems are collected once the configs can be read."""

from __future__ import annotations

from collections.abc import Iterator

from clouds.frame import featuregates
from clouds.frame.cloud import ShootReview
from clouds.frame.decoding import decode, decode_leniently, decode_shared
from clouds.frame.gardenobjects import Shoot, Worker, families_other_than_ipv4, zones_not_extended
from clouds.frame.problems import Problem, Refused, invalid, not_supported, required, unchanged
from clouds.gcp import infrastructure, worker
from clouds.gcp.api import CloudProfileConfig, ControlPlaneConfig, InfrastructureConfig, WorkerConfig
from windowbox.errors import Malformed

_PROVIDER = "spec.provider"
_INFRASTRUCTURE = f"{_PROVIDER}.infrastructureConfig"
_CONTROL_PLANE = f"{_PROVIDER}.controlPlaneConfig"
_WORKERS = f"{_PROVIDER}.workers"


def problems(review: ShootReview) -> Iterator[Problem]:
    shoot, spec = review.shoot, review.shoot.spec
    stored = _configs(review.old, strict=False) if review.old else None
    infra, control_plane = _configs(shoot, strict=True)
    if review.profile.provider_config is None:
        raise Malformed("providerConfig of the CloudProfile is missing: add it")
    decode_shared(
        CloudProfileConfig, review.profile.provider_config, "spec.providerConfig of the CloudProfile"
    )
    if review.old and stored:
        yield from infrastructure.update_problems(stored[0], infra)
        yield from unchanged(f"{_CONTROL_PLANE}.zone", control_plane.zone, stored[1].zone)  # GCP-U4
        yield from zones_not_extended(review.old.spec.provider.workers, spec.provider.workers, _WORKERS)
    yield from families_other_than_ipv4(spec.networking)  # GCP-N1
    if spec.networking.nodes is None:
        yield required("spec.networking.nodes", "give the range of nodes, such as 10.250.0.0/16")
    yield from infrastructure.problems(infra, spec.networking)
    for i, pool in enumerate(spec.provider.workers):
        yield from worker.problems(pool, f"{_WORKERS}[{i}]")
    yield from _control_plane(control_plane, review)
    for i, pool in enumerate(spec.provider.workers):
        yield from _worker_config(pool, f"{_WORKERS}[{i}].providerConfig")


def _configs(shoot: Shoot, *, strict: bool) -> tuple[InfrastructureConfig, ControlPlaneConfig]:
    """GCP-I11."""
    provider, read = shoot.spec.provider, decode if strict else decode_leniently
    if provider.infrastructure_config is None:
        raise Refused(required(_INFRASTRUCTURE, "give an InfrastructureConfig"))
    infra = read(InfrastructureConfig, provider.infrastructure_config, _INFRASTRUCTURE)
    if provider.control_plane_config is None:
        raise Refused(required(_CONTROL_PLANE, "give a ControlPlaneConfig"))
    return infra, read(ControlPlaneConfig, provider.control_plane_config, _CONTROL_PLANE)


def _control_plane(config: ControlPlaneConfig, review: ShootReview) -> Iterator[Problem]:
    """GCP-C1 to GCP-C3."""
    spec, path = review.shoot.spec, f"{_CONTROL_PLANE}.zone"
    known = review.profile.zones(spec.region) or frozenset()
    if not config.zone:
        yield required(path, "name a zone of the region that a pool uses")
    elif config.zone not in known:
        yield not_supported(path, config.zone, known)
    if not any(config.zone in pool.zones for pool in spec.provider.workers):
        yield invalid(path, config.zone, "must be part of at least one worker zone: add it to a pool")
    yield from featuregates.problems(config.cloud_controller_manager, spec.kubernetes.version)


def _worker_config(pool: Worker, path: str) -> Iterator[Problem]:
    try:
        config = None if pool.provider_config is None else decode(WorkerConfig, pool.provider_config, path)
    except Malformed as error:
        yield Problem(path, "Invalid", str(error))
        return
    yield from worker.config_problems(pool, config)
