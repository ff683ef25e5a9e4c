"""The cloud of an Infrastructure of type aws: one VPC, three subnets and a NAT gateway in each zone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from ipaddress import IPv6Network
from itertools import chain, islice
from typing import Any, NamedTuple

from clouds.aws import infrastructure
from clouds.aws.api import InfrastructureConfig, Zone
from clouds.frame import inventory
from clouds.frame.cidrs import unusable
from clouds.frame.decoding import decode
from clouds.frame.infrastructure import (
    NODE_PORTS,
    Json,
    Opening,
    Plan,
    Planner,
    Site,
    Subnet,
    data_of,
    require_valid,
    require_zones,
    state_object,
)
from clouds.frame.inventory import CloudObject, Found, Reference
from windowbox.errors import Malformed

_VERSION = "aws.provider.extensions.gardener.cloud/v1alpha1"
_BLOCKS = int(IPv6Network("2600:1f00::/24").network_address)
"""Amazon's, of which each VPC gets a part."""
_BLOCK_LENGTH = 56


class _Zone(NamedTuple):
    """A zone, the suffix of its names, and the ids of its objects by their key in the state."""

    given: Zone
    suffix: str
    ids: dict[str, str]
    address: str
    """Of its NAT gateway."""
    ipv6: tuple[str, ...]
    """The ranges of the subnets for workers, internal and public load balancers; empty without IPv6."""

    def of_machines(self, families: Collection[str]) -> Iterator[str]:
        """The ranges that machines have addresses of."""
        if "IPv4" in families:
            yield self.given.workers
        if "IPv6" in families:
            yield self.ipv6[0]


def references(site: Site) -> list[Reference]:
    networks = _config(site).networks
    found = []
    if networks.vpc.id is not None:
        found.append(Reference("vpc", networks.vpc.id, "networks.vpc.id"))
    for i, zone in enumerate(networks.zones):
        if (given := zone.elastic_ip_allocation_id) is not None:
            path = f"networks.zones[{i}].elasticIPAllocationID"
            found.append(Reference("elastic-ip", given, path, exclusive=True))
    return found


def plan(site: Site, found: Found) -> Plan:
    config, uses, given = _config(site), references(site), site.networking
    problems = infrastructure.problems(config, given)
    require_zones([zone.name for zone in config.networks.zones], "networks.zones")
    require_valid(chain(problems, unusable(*given.ranges("spec.networking"))))
    addresses = {}
    for one in uses:
        existing = inventory.required(found, one, site.technical_id)
        if one.kind == "vpc":
            _check_vpc(existing, one, site, config)
        else:
            addresses[one.id] = inventory.address_of(existing, one)  # AWS-R4
    data = _shared_data(site, config, found)
    zones = list(_zones(site, config, data.get("VPCIPv6CidrBlock"), addresses))
    data |= {f"Zones/{zone.given.name}/{name}": one for zone in zones for name, one in zone.ids.items()}
    egress = [f"{zone.address}/32" for zone in zones]
    data["EgressCIDRs"] = ",".join(egress)
    ranges = {"nodes": given.nodes, "pods": given.pods, "services": given.services}
    networking = {name: [one] if one else [] for name, one in ranges.items()}
    if "IPv6" in given.ip_families:
        block = data["VPCIPv6CidrBlock"]
        data["ServiceCIDR"] = _service_range(block)
        for name, own in (("nodes", block), ("pods", block), ("services", data["ServiceCIDR"])):
            networking[name].insert(0, own)
        egress.append(block)
    return Plan(
        objects=(
            *_shared_objects(site, config, data),
            *(one for zone in zones for one in _objects(site, zone, data)),
        ),
        provider_status=_status(data, zones),
        state=state_object(_VERSION, data),
        subnets=tuple(
            Subnet(cidr, zone.given.name) for zone in zones for cidr in zone.of_machines(given.ip_families)
        ),
        egress=tuple(egress),
        uses=tuple(uses),
        openings=tuple(_openings(zones, given.ip_families)),
        networking=networking,
    )


PLANNER = Planner(references, plan)


def _config(site: Site) -> InfrastructureConfig:
    return decode(InfrastructureConfig, site.config, "spec.providerConfig")


def _check_vpc(vpc: CloudObject, used: Reference, site: Site, config: InfrastructureConfig) -> None:
    """AWS-R1 to AWS-R3: what the user has to have prepared."""
    domain = "ec2.internal" if site.region == "us-east-1" else f"{site.region}.compute.internal"
    dns = {"enableDnsSupport": True, "enableDnsHostnames": True, "domainName": domain}
    inventory.require_properties(vpc, used, **dns, internetGateway=True)
    if "IPv6" in site.networking.ip_families:
        inventory.require_properties(vpc, used, egressOnlyInternetGateway=True)
    if not _with_block(site, config):
        return
    block = str(vpc.properties.get("ipv6CidrBlock") or "")
    try:
        is_amazons = IPv6Network(block).prefixlen == _BLOCK_LENGTH
    except ValueError:
        is_amazons = False
    if not is_amazons:
        raise Malformed(
            f"{used.path}: Invalid value: {used.id!r:.80}: ipv6CidrBlock of this vpc is {block!r:.80} and "
            f"has to be an IPv6 range of length {_BLOCK_LENGTH}: associate Amazon's"
        )


def _with_block(site: Site, config: InfrastructureConfig) -> bool:
    """Whether the VPC has a range of IPv6."""
    by_config = config.dual_stack is not None and config.dual_stack.enabled
    return by_config or "IPv6" in site.networking.ip_families


def _shared_data(site: Site, config: InfrastructureConfig, found: Found) -> dict[str, str]:
    """The ids of what all zones share, by their keys in the state."""
    who, name, vpc = (site.account, site.technical_id), site.technical_id, config.networks.vpc
    data: dict[str, str] = {}
    if vpc.id is None:
        data |= {
            "DHCPOptions": inventory.made_id("dopt-", *who),
            "VPC": inventory.made_id("vpc-", *who),
            "DefaultSecurityGroup": inventory.made_id("sg-", *who, "default"),
        }
    else:
        data["VPC"] = vpc.id
    data["InternetGateway"] = inventory.made_id("igw-", site.account, data["VPC"])
    if _with_block(site, config):
        given = found["vpc", vpc.id].properties["ipv6CidrBlock"] if vpc.id else None
        data["VPCIPv6CidrBlock"] = str(given or _block(data["VPC"]))
    if "IPv6" in site.networking.ip_families:
        data["EgressOnlyInternetGateway"] = inventory.made_id("eigw-", site.account, data["VPC"])
    for endpoint in vpc.gateway_endpoints:
        data[f"VPCEndpoints/{endpoint}"] = inventory.made_id("vpce-", *who, endpoint)
    account = site.account.rpartition("-")[2]
    data |= {
        "MainRouteTable": inventory.made_id("rtb-", *who),
        "NodesSecurityGroup": inventory.made_id("sg-", *who, "nodes"),
        "IAMRoleName": f"{name}-nodes",
        "IAMRoleARN": f"arn:aws:iam::{account}:role/{name}-nodes",
        "IAMInstanceProfileName": f"{name}-nodes",
        "IAMRolePolicyName": f"{name}-nodes",
    }
    if site.ssh_public_key:
        spelled = inventory.fingerprint(site.ssh_public_key)
        key = {
            "KeyPair": f"{name}-ssh-publickey",
            "KeyPairFingerprint": spelled,
            "KeyPairSpecFingerprint": spelled,
        }
        data |= key
    return data


def _zones(
    site: Site, config: InfrastructureConfig, block: str | None, addresses: Mapping[str, str]
) -> Iterator[_Zone]:
    """Each zone with the suffix that it had before, else the lowest that is free."""
    before, zones = data_of(site), config.networks.zones
    known = {zone.name: before.get(f"Zones/{zone.name}/Suffix") for zone in zones}
    free = (f"z{i}" for i in range(2 * len(known)) if f"z{i}" not in known.values())
    each = IPv6Network(block).subnets(new_prefix=64) if block else iter(())
    for i, zone in enumerate(zones):
        ipv6 = tuple(str(one) for one in islice(each, 3))
        if block and len(ipv6) < 3:
            raise Malformed(f"networks.zones[{i}]: {block} has no subnets left for it: remove the zone")
        yield _zone(site, zone, known[zone.name] or next(free), addresses, ipv6)


def _zone(site: Site, zone: Zone, suffix: str, addresses: Mapping[str, str], ipv6: tuple[str, ...]) -> _Zone:
    who, given = (site.account, site.technical_id, zone.name), zone.elastic_ip_allocation_id
    ids = {
        "Suffix": suffix,
        "SubnetWorkers": inventory.made_id("subnet-", *who, "workers"),
        "SubnetPublicUtility": inventory.made_id("subnet-", *who, "public"),
        "SubnetPrivateUtility": inventory.made_id("subnet-", *who, "internal"),
    }
    if given is None:
        before, path = data_of(site), f"Zones/{zone.name}/"
        # After one of the user's, the gateway gets a new one: its first one is gone for good.
        new = inventory.made_id("eipalloc-", *who, before.get(f"{path}NATGateway", ""))
        ids["NATGatewayElasticIP"] = before.get(f"{path}NATGatewayElasticIP", new)
    ip = given or ids["NATGatewayElasticIP"]
    ids["NATGateway"] = inventory.made_id("nat-", *who, ip)
    ids["ZoneRouteTable"] = inventory.made_id("rtb-", *who)
    for part in ("Public", "Private", "Workers"):
        ids[f"Subnet{part}RouteTableAssoc"] = inventory.made_id("rtbassoc-", *who, part)
    return _Zone(zone, suffix, ids, addresses.get(ip) or inventory.played_address(ip), ipv6)


def _openings(zones: list[_Zone], families: Collection[str]) -> Iterator[Opening]:
    """Node ports, for everybody and for the subnets of load balancers."""
    sources = []
    if "IPv4" in families:
        sources += [
            "0.0.0.0/0",
            *(cidr for zone in zones for cidr in (zone.given.internal, zone.given.public)),
        ]
    if "IPv6" in families:
        sources += ["::/0", *(cidr for zone in zones for cidr in zone.ipv6[1:])]
    for source in sources:
        yield from (Opening(one.protocol, one.first, one.last, source) for one in NODE_PORTS)


def _shared_objects(site: Site, config: InfrastructureConfig, data: dict[str, str]) -> Iterator[CloudObject]:
    name, vpc = site.technical_id, config.networks.vpc

    def made(kind: str, key: str, named: str = name, **properties: Any) -> CloudObject:
        return CloudObject(kind, data[key], named, properties)

    if vpc.id is None:
        yield made("dhcp-options", "DHCPOptions")
        ipv6 = {"ipv6CidrBlock": data["VPCIPv6CidrBlock"]} if "VPCIPv6CidrBlock" in data else {}
        yield made("vpc", "VPC", cidr=vpc.cidr, **ipv6)
        yield made("security-group", "DefaultSecurityGroup", "default")
        yield made("internet-gateway", "InternetGateway")
    if "EgressOnlyInternetGateway" in data and vpc.id is None:
        yield made("egress-only-internet-gateway", "EgressOnlyInternetGateway")
    for endpoint in dict.fromkeys(vpc.gateway_endpoints):
        service = f"com.amazonaws.{site.region}.{endpoint}"
        yield made("vpc-endpoint", f"VPCEndpoints/{endpoint}", f"{name}-gw-{endpoint}", service=service)
    yield made("route-table", "MainRouteTable")
    yield made("security-group", "NodesSecurityGroup", f"{name}-nodes")
    yield CloudObject(
        "iam-role", data["IAMRoleARN"], data["IAMRoleName"], {"ecr": config.enable_ecr_access is not False}
    )
    yield CloudObject("iam-instance-profile", data["IAMInstanceProfileName"], data["IAMInstanceProfileName"])
    if "KeyPair" in data:
        yield CloudObject(
            "key-pair", data["KeyPair"], data["KeyPair"], {"fingerprint": data["KeyPairFingerprint"]}
        )


def _objects(site: Site, zone: _Zone, data: dict[str, str]) -> Iterator[CloudObject]:
    given, name = zone.given, site.technical_id

    def made(kind: str, key: str, named: str, **properties: Any) -> CloudObject:
        return CloudObject(
            kind, zone.ids[key], f"{name}-{named}-{zone.suffix}", {"zone": given.name, **properties}
        )

    workers = given.workers if "IPv4" in site.networking.ip_families else None
    ipv6 = zone.ipv6 or (None, None, None)
    yield made("subnet", "SubnetWorkers", "nodes", cidr=workers, ipv6Cidr=ipv6[0])
    yield made("subnet", "SubnetPublicUtility", "public-utility", cidr=given.public, ipv6Cidr=ipv6[2])
    yield made("subnet", "SubnetPrivateUtility", "private-utility", cidr=given.internal, ipv6Cidr=ipv6[1])
    if "NATGatewayElasticIP" in zone.ids:
        yield made("elastic-ip", "NATGatewayElasticIP", "eip-natgw", address=zone.address)
    yield made("nat-gateway", "NATGateway", "natgw", address=zone.address, vpc=data["VPC"])
    yield made("route-table", "ZoneRouteTable", "private")


def _status(data: dict[str, str], zones: list[_Zone]) -> Json:
    subnets = [
        {"purpose": purpose, "id": zone.ids[key], "zone": zone.given.name}
        for zone in zones
        for purpose, key in (("nodes", "SubnetWorkers"), ("public", "SubnetPublicUtility"))
    ]
    return {
        "apiVersion": _VERSION,
        "kind": "InfrastructureStatus",
        "ec2": {"keyName": data.get("KeyPair", "")},
        "iam": {
            "instanceProfiles": [{"purpose": "nodes", "name": data["IAMInstanceProfileName"]}],
            "roles": [{"purpose": "nodes", "arn": data["IAMRoleARN"]}],
        },
        "vpc": {
            "id": data["VPC"],
            "subnets": subnets,
            "securityGroups": [{"purpose": "nodes", "id": data["NodesSecurityGroup"]}],
        },
    }


def _block(vpc: str) -> str:
    """The IPv6 block that Amazon gives a VPC."""
    return str(IPv6Network((_BLOCKS + (int(inventory.digest(vpc)[:8], 16) << 72), _BLOCK_LENGTH)))


def _service_range(block: str) -> str:
    """The second /108 of the first zone's subnet for workers."""
    first = next(IPv6Network(block).subnets(new_prefix=64))
    return str(IPv6Network((int(first.network_address) + (1 << 20), 108)))
