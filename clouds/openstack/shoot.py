"""Shoots of type openstack. All problems are collected once the configs can be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from clouds.frame.admission import credentials
from clouds.frame.cloud import ShootReview
from clouds.frame.decoding import decode, decode_leniently, decode_shared
from clouds.frame.gardenobjects import Shoot, families_other_than_ipv4, zones_not_extended
from clouds.frame.problems import Problem, Refused, required
from clouds.openstack import controlplane, infrastructure, secret, worker
from clouds.openstack.api import CloudProfileConfig, ControlPlaneConfig, InfrastructureConfig
from windowbox.errors import Malformed

_INFRASTRUCTURE = "spec.provider.infrastructureConfig"
_CONTROL_PLANE = "spec.provider.controlPlaneConfig"
_WORKERS = "spec.provider.workers"


class _Configs(NamedTuple):
    infrastructure: InfrastructureConfig
    control_plane: ControlPlaneConfig


def problems(review: ShootReview) -> Iterator[Problem]:
    spec, domain = review.shoot.spec, _domain(review)
    old = _configs(review.old, strict=False) if review.old else None
    new, profile = _configs(review.shoot, strict=True), _profile(review)
    if review.old and old:
        changes = [*zones_not_extended(review.old.spec.provider.workers, spec.provider.workers, _WORKERS)]
        if changes:
            raise Refused(*changes)
        yield from infrastructure.update_problems(old.infrastructure, new.infrastructure)
    yield from _against_profile(old, new, profile, domain, spec.region)
    if spec.networking.nodes is None:  # OST-N1
        yield required("spec.networking.nodes", "give the range of nodes, such as 10.250.0.0/16")
    yield from families_other_than_ipv4(spec.networking)
    yield from infrastructure.problems(new.infrastructure, spec.networking)
    yield from controlplane.problems(new.control_plane, new.infrastructure, spec.kubernetes.version)
    for i, pool in enumerate(spec.provider.workers):
        yield from worker.problems(pool, profile, f"{_WORKERS}[{i}]")


def _domain(review: ShootReview) -> str | None:
    """The domain of the credentials; None if the Shoot refers to none. Malformed if they cannot be used."""
    spec = review.shoot.spec
    if spec.secret_binding_name is None and spec.credentials_binding_name is None:
        return None
    data = credentials(review.shoot, review.find)
    if reason := secret.incomplete(data):
        raise Malformed(f"the credentials of the Shoot cannot be used: {reason}")
    return data["domainName"].decode(errors="replace")


def _configs(shoot: Shoot, *, strict: bool) -> _Configs:
    """OST-I6."""
    provider, read = shoot.spec.provider, decode if strict else decode_leniently
    if provider.infrastructure_config is None:
        raise Refused(required(_INFRASTRUCTURE, "give an InfrastructureConfig"))
    infra = read(InfrastructureConfig, provider.infrastructure_config, _INFRASTRUCTURE)
    if provider.control_plane_config is None:
        raise Refused(required(_CONTROL_PLANE, "give a ControlPlaneConfig"))
    return _Configs(infra, read(ControlPlaneConfig, provider.control_plane_config, _CONTROL_PLANE))


def _profile(review: ShootReview) -> CloudProfileConfig:
    given = review.profile.provider_config
    if given is None:
        raise Malformed("providerConfig of the CloudProfile is missing: add it")
    return decode_shared(CloudProfileConfig, given, "spec.providerConfig of the CloudProfile")


def _against_profile(
    old: _Configs | None, new: _Configs, profile: CloudProfileConfig, domain: str | None, region: str
) -> Iterator[Problem]:
    """OST-P7, OST-P8: without credentials, and so without a domain, nothing can be compared."""
    infra, control_plane = new
    before = old.control_plane if old else None
    # Zones are compared by address, not by value: one that is set is always different.
    needs_domain = before is not None and (
        (before.zone, control_plane.zone) != (None, None)
        or before.load_balancer_classes != control_plane.load_balancer_classes
        or (old and old.infrastructure.floating_pool_name != infra.floating_pool_name)
    )
    if domain is None:
        if needs_domain:
            raise Malformed("spec.secretBindingName is missing: the CloudProfile is compared with its domain")
        return
    if old is None or old.infrastructure.floating_pool_name != infra.floating_pool_name:
        yield from infrastructure.pool_problems(infra, profile, domain, region)
    pool = infra.floating_pool_name
    yield from controlplane.profile_problems(before, control_plane, profile, domain, region, pool)
