"""ControlPlaneConfigs of type openstack."""

from __future__ import annotations

from collections.abc import Iterator

from clouds.frame import featuregates
from clouds.frame.problems import Problem, invalid, listing, not_supported, required
from clouds.openstack.api import CloudProfileConfig, ControlPlaneConfig, InfrastructureConfig
from clouds.openstack.constraints import classes, floatingpools

_PATH = "spec.provider.controlPlaneConfig"
_CLASSES = f"{_PATH}.loadBalancerClasses"


def problems(config: ControlPlaneConfig, infra: InfrastructureConfig, kubernetes: str) -> Iterator[Problem]:
    if not config.load_balancer_provider:  # OST-C1
        yield required(f"{_PATH}.loadBalancerProvider", "name a load balancer provider of the CloudProfile")
    yield from classes.problems(config.load_balancer_classes, _CLASSES)
    for i, one in enumerate(config.load_balancer_classes):
        if one.purpose == "vpn":  # OST-C3
            yield invalid(
                f"{_CLASSES}[{i}]", one.purpose, "vpn is for CloudProfiles only: use default or private"
            )
    storage = config.storage
    if (
        storage and storage.csi_manila and storage.csi_manila.enabled and not infra.networks.is_shared
    ):  # OST-C8
        detail = "needs a share network: set networks.shareNetwork.enabled in the infrastructureConfig"
        yield invalid(f"{_PATH}.storage.csiManila.enabled", True, detail)
    yield from featuregates.problems(config.cloud_controller_manager, kubernetes)


def profile_problems(
    old: ControlPlaneConfig | None,
    new: ControlPlaneConfig,
    profile: CloudProfileConfig,
    domain: str,
    region: str,
    pool: str,
) -> Iterator[Problem]:
    """OST-U2: what changed is checked against the CloudProfile."""
    constraints = profile.constraints
    if old is None or old.load_balancer_provider != new.load_balancer_provider:
        allowed = floatingpools.allowed_providers(constraints.load_balancer_providers, region)
        if new.load_balancer_provider not in allowed:
            yield not_supported(f"{_PATH}.loadBalancerProvider", new.load_balancer_provider, allowed)
    if not new.load_balancer_classes or (old and old.load_balancer_classes == new.load_balancer_classes):
        return
    found = floatingpools.choice(constraints.floating_pools, domain, region, pool)
    if isinstance(found, frozenset):
        yield invalid("floatingPoolName", pool, f"is not allowed: use one of {listing(found)}")
        return
    for i, one in enumerate(new.load_balancer_classes if found.load_balancer_classes else ()):  # OST-C6
        if not any(classes.are_alike(one, each) for each in found.load_balancer_classes):
            yield not_supported(
                f"{_CLASSES}[{i}]", one.name, [each.name for each in found.load_balancer_classes]
            )
