"""InfrastructureConfigs of type openstack."""

from __future__ import annotations

import re
from collections.abc import Iterator

from clouds.frame.cidrs import Cidr, not_canonical, outside, unparsable
from clouds.frame.gardenobjects import Networking
from clouds.frame.problems import Problem, invalid, not_supported, required, unchanged
from clouds.openstack.api import CloudProfileConfig, InfrastructureConfig
from clouds.openstack.constraints import floatingpools

_PATH = "spec.provider.infrastructureConfig"
_NETWORKS = f"{_PATH}.networks"
_HEX = "[0-9a-fA-F]"
_DASHED = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_UUID = re.compile(rf"(?:[uU][rR][nN]:[uU][uU][iI][dD]:)?{_DASHED}|\{{{_DASHED}\}}|{_HEX}{{32}}")


def problems(config: InfrastructureConfig, networking: Networking) -> Iterator[Problem]:
    networks = config.networks
    if not config.floating_pool_name:  # OST-I1
        yield required(f"{_PATH}.floatingPoolName", "name a floating pool of the CloudProfile")
    nodes, _, _ = networking.ranges("spec.networking")
    given = [
        Cidr(text, f"{_NETWORKS}.{name}")
        for name, text in (("worker", networks.worker), ("workers", networks.workers))
        if text
    ]
    if not given:  # OST-I5
        yield required(f"{_NETWORKS}.workers", "give the range of the nodes' subnet, such as 10.250.0.0/19")
    yield from unparsable(*given)
    yield from not_canonical(*given)
    yield from outside(nodes, *given[-1:])
    if networks.id is not None and not _UUID.fullmatch(networks.id):  # OST-I3
        yield invalid(
            f"{_NETWORKS}.id",
            networks.id,
            "is no UUID: copy the ID of the network again",
        )
    if networks.router is not None and not networks.router.id:  # OST-I4
        yield invalid(f"{_NETWORKS}.router.id", "", "is empty: give it, or remove router")
    if (
        config.floating_pool_subnet_name is not None and networks.router is not None and networks.router.id
    ):  # OST-I2
        detail = "is for a router of its own: remove it, or networks.router"
        yield invalid(f"{_PATH}.floatingPoolSubnetName", config.floating_pool_subnet_name, detail)


def pool_problems(
    config: InfrastructureConfig, profile: CloudProfileConfig, domain: str, region: str
) -> Iterator[Problem]:
    """OST-P7."""
    found = floatingpools.choice(
        profile.constraints.floating_pools, domain, region, config.floating_pool_name
    )
    if isinstance(found, frozenset):
        yield not_supported(f"{_PATH}.floatingPoolName", config.floating_pool_name, found)


def update_problems(old: InfrastructureConfig, new: InfrastructureConfig) -> Iterator[Problem]:
    """OST-U1: a share network may be switched on."""
    before, after = old.networks, new.networks
    if after.is_shared and not before.is_shared:
        after = after.model_copy(update={"share_network": before.share_network})
    yield from unchanged(f"{_NETWORKS}", after, before)
    yield from unchanged(f"{_PATH}.floatingPoolName", new.floating_pool_name, old.floating_pool_name)
    stored = old.floating_pool_subnet_name
    yield from unchanged(f"{_PATH}.floatingPoolSubnetName", new.floating_pool_subnet_name, stored)
