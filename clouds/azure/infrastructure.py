"""InfrastructureConfigs of type azure: one subnet for all zones (`workers`), or one for each (`zones`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from clouds.azure.api import InfrastructureConfig, NatGateway, VNet, ZonalNatGateway, ZonalPublicIP, Zone
from clouds.frame.cidrs import Cidr, meeting, meeting_each_other, not_canonical, outside, unparsable
from clouds.frame.gardenobjects import Networking
from clouds.frame.problems import Problem, forbidden, invalid, not_supported, required, unchanged

_PATH = "spec.provider.infrastructureConfig"
_NETWORKS = f"{_PATH}.networks"
_UPDATED = "metadata"
"""Where the extension reports what may not change."""
_TIMEOUTS = range(4, 121)
"""Minutes."""


class _Ranges(NamedTuple):
    nodes: Cidr | None
    pods: Cidr | None
    services: Cidr | None
    workers: Cidr | None
    zones: list[Cidr]


def unknown_zones(
    old: InfrastructureConfig | None, new: InfrastructureConfig, known: Collection[str] | None
) -> Iterator[Problem]:
    """AZU-I10: zones that the region does not have (`known`; None if it is not in the profile)."""
    stored = {zone.name for zone in old.zones} if old else set[int]()
    for i, zone in enumerate(new.zones if known is not None else ()):
        if known is not None and zone.name not in stored and str(zone.name) not in known:
            yield not_supported(f"{_NETWORKS}.zones[{i}].name", zone.name, known)


def problems(config: InfrastructureConfig, networking: Networking, *, migrates: bool) -> Iterator[Problem]:
    """`migrates` if the Shoot is on its way from an availability set to scale sets."""
    if config.resource_group is not None:  # AZU-I1
        detail = "specifying an existing resource group is not supported yet: remove it"
        yield invalid(f"{_PATH}.resourceGroup", config.resource_group, detail)
    yield from _networks(config, networking, migrates=migrates)
    identity = config.identity
    if identity is not None and not (identity.name and identity.resource_group):  # AZU-I2
        detail = "give its name and its resource group"
        yield invalid(f"{_PATH}.identity", identity, detail)


def _networks(config: InfrastructureConfig, networking: Networking, *, migrates: bool) -> Iterator[Problem]:
    networks, path = config.networks, f"{_NETWORKS}.workers"
    if (networks.workers is None) == (not config.zones):  # AZU-I5
        yield forbidden(path, "give either workers or zones")
        return
    nodes, pods, services = networking.ranges("networking")
    workers = None if networks.workers is None else Cidr(networks.workers, path)
    subnets = [Cidr(zone.cidr, f"{_NETWORKS}.zones[{i}].cidr") for i, zone in enumerate(config.zones)]
    yield from _vnet(config, _Ranges(nodes, pods, services, workers, subnets))
    if workers is not None:
        yield from unparsable(workers)
        yield from not_canonical(workers)
        yield from outside(nodes, workers)  # AZU-I8
        if networks.nat_gateway:
            yield from _nat(networks.nat_gateway, f"{_NETWORKS}.natGateway", migrates=migrates)
        return
    if not config.zoned:  # AZU-I9
        yield forbidden(f"{_NETWORKS}.zones", "are for zonal clusters: set zoned to true, or use workers")
    if networks.nat_gateway is not None:
        yield forbidden(path, "natGateway is for clusters with workers: move it into the zones")
    if networks.service_endpoints:
        yield forbidden(path, "serviceEndpoints are for clusters with workers: move them into the zones")
    yield from _zone_problems(config.zones)
    yield from not_canonical(*subnets)  # AZU-I10
    yield from unparsable(*subnets)
    yield from outside(nodes, *subnets)
    yield from meeting_each_other(subnets)
    yield from meeting(pods, *subnets)
    yield from meeting(services, *subnets)


def _vnet(config: InfrastructureConfig, ranges: _Ranges) -> Iterator[Problem]:
    vnet, path = config.networks.vnet, f"{_NETWORKS}.vnet"
    if (vnet.name is None) != (vnet.resource_group is None):  # AZU-I3
        yield invalid(path, vnet, "needs a cidr, or the name and the resource group of an existing one")
    elif vnet.exists_already:
        yield from _existing_vnet(vnet, config.resource_group.name if config.resource_group else None, path)
    elif vnet.cidr is not None:  # AZU-I7
        whole = Cidr(vnet.cidr, f"{path}.cidr")
        yield from unparsable(whole)
        yield from not_canonical(whole)
        yield from outside(whole, ranges.nodes, ranges.workers, *ranges.zones)
        yield from meeting(whole, ranges.pods, ranges.services)
    elif ranges.workers is None:  # AZU-I9
        yield forbidden(f"{path}.cidr", "give it, or an existing vnet, where each zone has its own subnet")
    else:  # AZU-I6
        yield from outside(ranges.workers, ranges.nodes)
        yield from meeting(ranges.workers, ranges.pods, ranges.services)


def _existing_vnet(vnet: VNet, cluster_group: str | None, path: str) -> Iterator[Problem]:
    """AZU-I3, AZU-I4."""
    if vnet.name == "":
        yield required(f"{path}.name", "is empty: give the name of the VNet, or remove vnet")
    if vnet.resource_group == "":
        yield required(f"{path}.resourceGroup", "is empty: give that of the VNet, or remove vnet")
    if vnet.cidr is not None:
        yield invalid(f"{path}.cidr", vnet.cidr, "an existing vnet has its own range: remove the cidr")
    if vnet.resource_group == cluster_group:
        detail = "must not be the resource group of the cluster: move the vnet to another one"
        yield invalid(f"{path}.resourceGroup", vnet.resource_group, detail)
    if vnet.ddos_protection_plan_id is not None:
        detail = "cannot protect a vnet that Gardener does not manage: remove it, and set it in Azure"
        yield forbidden(f"{path}.ddosProtectionPlanID", detail)


def _zone_problems(zones: Sequence[Zone]) -> Iterator[Problem]:
    used: set[int] = set()
    for i, zone in enumerate(zones):
        path = f"{_NETWORKS}.zones[{i}]"
        if zone.name in used:  # AZU-I10
            yield invalid(path, zone.name, "is there twice: remove it")
        used.add(zone.name)
        if gateway := zone.nat_gateway:
            yield from _disabled_with_more(gateway, f"{path}.natGateway")
            if gateway.enabled:
                yield from _addresses(gateway.ip_addresses or [], f"{path}.natGateway.ipAddresses")


def _nat(gateway: NatGateway, path: str, *, migrates: bool) -> Iterator[Problem]:
    yield from _disabled_with_more(gateway, path)
    if not gateway.enabled:
        return
    if migrates:  # AZU-I14
        yield forbidden(f"{path}.enabled", "must wait until the Shoot has moved to scale sets: disable it")
    minutes, addresses = gateway.idle_connection_timeout_minutes, gateway.ip_addresses or []
    if minutes is not None and minutes not in _TIMEOUTS:  # AZU-I13
        detail = f"give a number between {_TIMEOUTS[0]} and {_TIMEOUTS[-1]}"
        yield invalid(f"{path}.idleConnectionTimeoutMinutes", minutes, detail)
    if gateway.zone is None:  # AZU-I12
        if addresses:
            yield invalid(f"{path}.zone", None, "ipAddresses need the zone of the gateway: give it")
        return
    for i, address in enumerate(addresses):
        if address.zone != gateway.zone:
            detail = f"has to be the zone of the gateway ({gateway.zone}): use an address of that zone"
            yield invalid(f"{path}.ipAddresses[{i}].zone", address.zone, detail)
    yield from _addresses(addresses, f"{path}.ipAddresses")


def _disabled_with_more(gateway: NatGateway | ZonalNatGateway, path: str) -> Iterator[Problem]:
    """AZU-I11."""
    if not gateway.enabled and gateway != type(gateway)():
        yield invalid(path, gateway, "is disabled but has other fields: enable it, or remove them")


def _addresses(addresses: Sequence[ZonalPublicIP], path: str) -> Iterator[Problem]:
    """AZU-I12."""
    for i, address in enumerate(addresses):
        if not address.name:
            yield required(f"{path}[{i}].name", "give the name of a public IP address")
        if not address.resource_group:
            yield required(f"{path}[{i}].resourceGroup", "give the resource group of the address")


def update_problems(old: InfrastructureConfig, new: InfrastructureConfig) -> Iterator[Problem]:
    """AZU-U1 to AZU-U6. Configs that are equal are not looked at."""
    if old == new:
        return
    before, after, path = old.networks, new.networks, f"{_UPDATED}.networks"
    yield from unchanged(f"{_UPDATED}.resourceGroup", new.resource_group, old.resource_group)
    if (before.workers is not None and after.workers is not None) or not (old.zones or new.zones):  # AZU-U2
        yield from unchanged(f"{path}.workers", after.workers, before.workers)
    if old.zones and new.zones:
        yield from _zones_update(old.zones, new.zones, f"{path}.zones")
    elif old.zones:  # AZU-U4
        yield forbidden(f"{path}.worker", "one subnet cannot replace those of the zones: keep zones")
    elif new.zones and before.workers not in {zone.cidr for zone in new.zones}:  # AZU-U5
        # The extension crashes where the stored config has no workers.
        kept = "of the former workers" if before.workers is None else before.workers
        detail = f"one of the zones has to keep the range {kept}: give it this cidr"
        yield forbidden(f"{path}.zones", detail)
    yield from unchanged(f"{_UPDATED}.zoned", new.zoned, old.zoned)
    yield from _vnet_update(before.vnet, after.vnet, f"{path}.vnet")


def _zones_update(old: Sequence[Zone], new: Sequence[Zone], path: str) -> Iterator[Problem]:
    """AZU-U6. Zones are counted, not compared: one that is replaced by another is not missed."""
    if len(old) > len(new):
        yield forbidden(path, "zones cannot be removed: add them again")
    stored: dict[int, set[str]] = defaultdict(set)
    for zone in old:
        stored[zone.name].add(zone.cidr)
    for i, zone in enumerate(new):
        for cidr in sorted(stored.get(zone.name, set()) - {zone.cidr}):
            yield from unchanged(f"{path}[{i}].cidr", zone.cidr, cidr)


def _vnet_update(old: VNet, new: VNet, path: str) -> Iterator[Problem]:
    """AZU-U3."""
    if old.exists_already or old.is_default:
        yield from unchanged(f"{path}.name", new.name, old.name)
        yield from unchanged(f"{path}.resourceGroup", new.resource_group, old.resource_group)
    elif old.cidr is not None and new.cidr is None:
        yield invalid(f"{path}.cidr", None, f"cannot be removed: set it to {old.cidr} again")
    elif old.cidr is not None and new.cidr is not None:
        for _ in outside(Cidr(new.cidr, f"{path}.cidr"), Cidr(old.cidr, f"{path}.cidr")):
            yield invalid(f"{path}.cidr", new.cidr, f"can only be expanded: it has to contain {old.cidr}")
