"""InfrastructureConfigs of type aws."""

from __future__ import annotations

import re
from collections.abc import Iterator

from clouds.aws.api import IgnoreTags, InfrastructureConfig, Zone
from clouds.frame.cidrs import (
    Cidr,
    meeting,
    meeting_each_other,
    not_canonical,
    outside,
    unparsable,
)
from clouds.frame.gardenobjects import Networking, ProfileSpec
from clouds.frame.problems import Problem, duplicate, forbidden, invalid, not_supported, required, unchanged

_ENDPOINT = re.compile(r"\w+(\.\w+)*", re.ASCII)
_RESERVED_KEY = "Name"
_RESERVED_PREFIXES = ("kubernetes.io", "gardener.cloud")


def zone_problems(
    old: InfrastructureConfig | None, new: InfrastructureConfig, profile: ProfileSpec, region: str
) -> Iterator[Problem]:
    """AWS-I3: zones are of the region, each once. Those that stay as they were are not checked again."""
    known = profile.zones(region)
    if known is None:
        return
    used: set[str] = set()
    for i, zone in enumerate(new.networks.zones):
        path = f"spec.provider.infrastructureConfig.network.zones[{i}].name"
        if not _stays(old, i, zone):
            if zone.name not in known:
                yield not_supported(path, zone.name, known)
            if zone.name in used:
                yield duplicate(path, zone.name)
        used.add(zone.name)


def _stays(old: InfrastructureConfig | None, i: int, zone: Zone) -> bool:
    # The extension compares addresses of elastic IPs' texts: a zone that has one is never the same.
    stored = old.networks.zones if old else []
    return len(stored) > i and stored[i] == zone and zone.elastic_ip_allocation_id is None


def problems(config: InfrastructureConfig, networking: Networking) -> Iterator[Problem]:
    nodes, pods, services = networking.ranges("networking")
    vpc = config.networks.vpc
    if not config.networks.zones:
        yield required("networks.zones", "give the subnets of one zone at least")
    for i, endpoint in enumerate(vpc.gateway_endpoints):
        if not _ENDPOINT.fullmatch(endpoint):  # AWS-I8
            yield invalid(
                f"networks.vpc.gatewayEndpoints[{i}]",
                endpoint,
                "is no service: write it as s3",
            )

    with_ipv4 = "IPv4" in networking.ip_families
    subnets, workers = [], []
    for i, zone in enumerate(config.networks.zones):
        path = f"networks.zones[{i}]"
        subnets += [Cidr(zone.public, f"{path}.public"), Cidr(zone.internal, f"{path}.internal")]
        if with_ipv4:
            workers.append(Cidr(zone.workers, f"{path}.workers"))
            subnets.append(workers[-1])
    yield from _elastic_ips(config.networks.zones)
    yield from not_canonical(*subnets)
    yield from unparsable(*subnets)
    yield from outside(nodes, *workers)  # AWS-I5

    if (vpc.id is None) == (vpc.cidr is None):  # AWS-I2
        yield invalid(
            "networks.vpc",
            vpc.model_dump(exclude_none=True),
            "give either the id of a VPC or the cidr of a new one",
        )
    elif vpc.cidr is not None and "IPv6" not in networking.ip_families:  # AWS-I7
        whole = Cidr(vpc.cidr, "networks.vpc.cidr")
        yield from not_canonical(whole)
        yield from unparsable(whole)
        yield from outside(whole, nodes, *subnets)
        yield from meeting(whole, pods, services)

    yield from meeting_each_other(subnets)  # AWS-I6
    yield from meeting(pods, *subnets)
    yield from meeting(services, *subnets)
    if config.ignore_tags:
        yield from _ignore_tags(config.ignore_tags)


def _elastic_ips(zones: list[Zone]) -> Iterator[Problem]:
    """AWS-I9."""
    used: set[str] = set()
    for i, zone in enumerate(zones):
        path, given = f"networks.zones[{i}].elasticIPAllocationID", zone.elastic_ip_allocation_id
        if given is None:
            continue
        if given in used:
            yield duplicate(path, given)
        used.add(given)
        if not given.startswith("eipalloc-"):
            yield invalid(path, given, "must start with eipalloc-: give the ID, not the address")


def _ignore_tags(tags: IgnoreTags) -> Iterator[Problem]:
    """AWS-I10, AWS-I11: tags that the emulation itself reads cannot be ignored."""
    for i, key in enumerate(tags.keys):
        if not key or key == _RESERVED_KEY or key.startswith(_RESERVED_PREFIXES):
            yield invalid(f"ignoreTags.keys[{i}]", key, "is empty or reserved: ignore other keys only")
    for i, prefix in enumerate(tags.key_prefixes):
        reserved = (_RESERVED_KEY, *_RESERVED_PREFIXES)
        if any(one.startswith(prefix) for one in reserved) or prefix.startswith(_RESERVED_PREFIXES):
            detail = f"is empty or matches one of {', '.join(reserved)}: use another prefix"
            yield invalid(f"ignoreTags.keyPrefixes[{i}]", prefix, detail)


def update_problems(old: InfrastructureConfig, new: InfrastructureConfig) -> Iterator[Problem]:
    before, after = old.networks, new.networks
    yield from unchanged("networks.vpc.id", after.vpc.id, before.vpc.id)  # AWS-U1
    yield from unchanged("networks.vpc.cidr", after.vpc.cidr, before.vpc.cidr)
    if len(before.zones) > len(after.zones):  # AWS-U2
        yield forbidden("networks.zones", "zones cannot be removed: add them again")
        return
    for i, (one, other) in enumerate(zip(before.zones, after.zones, strict=False)):
        for name in ("name", "public", "internal", "workers"):
            yield from unchanged(f"networks.zones[{i}].{name}", getattr(other, name), getattr(one, name))
    if (
        old.dual_stack and old.dual_stack.enabled and not (new.dual_stack and new.dual_stack.enabled)
    ):  # AWS-U3
        yield forbidden("dualStack.enabled", "cannot be switched off: set it to true")
