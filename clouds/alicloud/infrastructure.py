"""InfrastructureConfigs of type alicloud."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clouds.alicloud.api import InfrastructureConfig, Zone
from clouds.frame.cidrs import Cidr, meeting, meeting_each_other, not_canonical, outside, unparsable
from clouds.frame.gardenobjects import Networking
from clouds.frame.problems import Problem, forbidden, invalid, required, unchanged


def problems(config: InfrastructureConfig, networking: Networking) -> Iterator[Problem]:
    nodes, pods, services = networking.ranges("networking")
    vpc, zones = config.networks.vpc, config.networks.zones
    if not zones:  # ALI-I3
        yield required("networks.zones", "give the range of one zone at least")
    workers = [
        Cidr(text, f"networks.zones[{i}].{name}")
        for i, zone in enumerate(zones)
        for name, text in (("worker", zone.worker), ("workers", zone.workers))
        if text
    ]
    yield from _nat_gateways(zones)
    yield from not_canonical(*workers)  # ALI-I4
    yield from unparsable(*workers)
    yield from outside(nodes, *workers)
    if (vpc.id is None) == (vpc.cidr is None):  # ALI-I2
        yield invalid("networks.vpc", vpc, "give either the id of a VPC or the cidr of a new one")
    elif vpc.cidr is not None:  # ALI-I5
        whole = Cidr(vpc.cidr, "networks.vpc.cidr")
        yield from not_canonical(whole)
        yield from unparsable(whole)
        yield from outside(whole, nodes, *workers)
        yield from meeting(whole, pods, services)
    yield from meeting_each_other(workers)
    yield from meeting(pods, *workers)
    yield from meeting(services, *workers)


def update_problems(old: InfrastructureConfig, new: InfrastructureConfig) -> Iterator[Problem]:
    yield from unchanged("networks.vpc", new.networks.vpc, old.networks.vpc)  # ALI-U1
    before, after = old.networks.zones, new.networks.zones
    if len(after) < len(before):  # ALI-U2
        yield forbidden("networks.zones", "zones cannot be removed: add them again")
        return
    for i, (one, other) in enumerate(zip(before, after, strict=False)):
        for name in ("name", "worker", "workers"):
            yield from unchanged(f"networks.zones[{i}]", getattr(other, name), getattr(one, name))
    yield from _nat_gateways(after)


def _nat_gateways(zones: Sequence[Zone]) -> Iterator[Problem]:
    """ALI-I6."""
    for i, zone in enumerate(zones):
        if zone.nat_gateway and not zone.nat_gateway.eip_allocation_id:
            detail = "eip id is not specified: give eipAllocationID, or remove natGateway"
            yield invalid(f"networks.zones[{i}].natGateway", zone.nat_gateway, detail)
