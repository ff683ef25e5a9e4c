"""The cloud of an Infrastructure of type aws: one VPC, three subnets and a NAT gateway in each zone."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv6Network
from typing import Any, NamedTuple

from clouds.aws.api import InfrastructureConfig, Zone
from clouds.frame import inventory
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
    state_object,
)
from clouds.frame.inventory import CloudObject, Found, Reference
from windowbox.errors import Malformed

_VERSION = "aws.provider.extensions.gardener.cloud/v1alpha1"
_BLOCKS = int(IPv6Network("2600:1f00::/24").network_address)
"""Amazon's, from which VPCs get a /56 each."""


class _Zone(NamedTuple):
    """A zone, the suffix of its names, and the ids of its objects by their key in the state."""

    given: Zone
    suffix: str
    ids: dict[str, str]
    address: str
    """Of its NAT gateway."""


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
    config = _config(site)
    uses = references(site)
    for one in uses:  # AWS-R1, AWS-R4
        existing = inventory.required(found, one, site.technical_id)
        if one.kind == "vpc":
            _check_vpc(existing, site, config, one.path)
    data = _shared_data(site, config, found)
    zones = list(_zones(site, config, found))
    data |= {f"Zones/{zone.given.name}/{name}": one for zone in zones for name, one in zone.ids.items()}
    data["EgressCIDRs"] = ",".join(f"{zone.address}/32" for zone in zones)
    egress, given = [f"{zone.address}/32" for zone in zones], site.networking
    ranges = {"nodes": given.nodes, "pods": given.pods, "services": given.services}
    networking = {name: [one] if one else [] for name, one in ranges.items()}
    if (block := data.get("VPCIPv6CidrBlock")) and "IPv6" in site.networking.ip_families:
        data["ServiceCIDR"] = _service_range(block)
        for name, own in (("nodes", block), ("pods", block), ("services", data["ServiceCIDR"])):
            networking[name].insert(0, own)
        egress.append(block)
    sources = [*(cidr for one in config.networks.zones for cidr in (one.internal, one.public)), "0.0.0.0/0"]
    return Plan(
        objects=(
            *_shared_objects(site, config, data),
            *(one for zone in zones for one in _objects(site, zone, data)),
        ),
        provider_status=_status(data, zones),
        state=state_object(_VERSION, data),
        subnets=tuple(Subnet(zone.given.workers or block or "", zone.given.name) for zone in zones),
        egress=tuple(egress),
        uses=tuple(uses),
        openings=tuple(
            Opening(one.protocol, one.first, one.last, source) for source in sources for one in NODE_PORTS
        ),
        networking=networking,
    )


PLANNER = Planner(references, plan)


def _config(site: Site) -> InfrastructureConfig:
    return decode(InfrastructureConfig, site.config, "spec.providerConfig")


def _check_vpc(vpc: CloudObject, site: Site, config: InfrastructureConfig, path: str) -> None:
    """AWS-R1 to AWS-R3: what the user has to have prepared."""
    domain = "ec2.internal" if site.region == "us-east-1" else f"{site.region}.compute.internal"
    has, families = vpc.properties, site.networking.ip_families
    wrong = None
    for name in ("enableDnsSupport", "enableDnsHostnames"):
        if has.get(name, True) is not True:
            wrong = f"VPC attribute {name} must be set to true"
    if has.get("internetGateway", True) is not True:
        wrong = "no attached internet gateway found: attach one"
    elif has.get("domainName", domain) != domain:
        wrong = f"its DHCP options must have the domain-name {domain}"
    elif config.dual_stack and config.dual_stack.enabled and not has.get("ipv6CidrBlock"):
        wrong = "it has no IPv6 CIDR: associate Amazon's"
    elif "IPv6" in families and has.get("egressOnlyInternetGateway", True) is not True:
        wrong = "it has no egress-only internet gateway: add one"
    if wrong:
        raise Malformed(f"{path}: Invalid value: {vpc.id!r:.80}: {wrong}")


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
    with_ipv6 = "IPv6" in site.networking.ip_families
    if with_ipv6 or (config.dual_stack and config.dual_stack.enabled):
        given = str(found["vpc", vpc.id].properties.get("ipv6CidrBlock") or "") if vpc.id else ""
        data["VPCIPv6CidrBlock"] = given or _block(data["VPC"])
    if with_ipv6:
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


def _zones(site: Site, config: InfrastructureConfig, found: Found) -> Iterator[_Zone]:
    """Each zone with the suffix that it had before, else the lowest that is free."""
    before = data_of(site)
    known = {zone.name: before.get(f"Zones/{zone.name}/Suffix") for zone in config.networks.zones}
    free = (f"z{i}" for i in range(1, len(known) + len(before) + 2) if f"z{i}" not in known.values())
    for zone in config.networks.zones:
        suffix = str(known[zone.name] or next(free))
        yield _zone(site, zone, suffix, found)


def _zone(site: Site, zone: Zone, suffix: str, found: Found) -> _Zone:
    who, given = (site.account, site.technical_id, zone.name), zone.elastic_ip_allocation_id
    ids = {
        "Suffix": suffix,
        "SubnetWorkers": inventory.made_id("subnet-", *who, "workers"),
        "SubnetPublicUtility": inventory.made_id("subnet-", *who, "public"),
        "SubnetPrivateUtility": inventory.made_id("subnet-", *who, "internal"),
    }
    address = str(found["elastic-ip", given].properties.get("address") or "") if given else ""
    if given is None:
        ids["NATGatewayElasticIP"] = inventory.made_id("eipalloc-", *who)
    # Another elastic IP needs another gateway.
    ids["NATGateway"] = inventory.made_id("nat-", *who, given or "")
    ids["ZoneRouteTable"] = inventory.made_id("rtb-", *who)
    for part in ("Public", "Private", "Workers"):
        ids[f"Subnet{part}RouteTableAssoc"] = inventory.made_id("rtbassoc-", *who, part)
    return _Zone(zone, suffix, ids, address or inventory.played_address(given or ids["NATGatewayElasticIP"]))


def _shared_objects(site: Site, config: InfrastructureConfig, data: dict[str, str]) -> Iterator[CloudObject]:
    name, vpc = site.technical_id, config.networks.vpc

    def made(kind: str, key: str, named: str = name, **properties: Any) -> CloudObject:
        return CloudObject(kind, data[key], named, properties)

    if vpc.id is None:
        yield made("dhcp-options", "DHCPOptions")
        yield made("vpc", "VPC", cidr=vpc.cidr, ipv6CidrBlock=data.get("VPCIPv6CidrBlock"))
        yield made("security-group", "DefaultSecurityGroup", "default")
        yield made("internet-gateway", "InternetGateway")
    if "EgressOnlyInternetGateway" in data and vpc.id is None:
        yield made("egress-only-internet-gateway", "EgressOnlyInternetGateway")
    for endpoint in vpc.gateway_endpoints:
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

    yield made("subnet", "SubnetWorkers", "nodes", cidr=given.workers)
    yield made("subnet", "SubnetPublicUtility", "public-utility", cidr=given.public)
    yield made("subnet", "SubnetPrivateUtility", "private-utility", cidr=given.internal)
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
    return str(IPv6Network((_BLOCKS + (int(inventory.digest(vpc)[:8], 16) << 72), 56)))


def _service_range(block: str) -> str:
    """The second /108 of the first zone's subnet for workers."""
    first = next(IPv6Network(block).subnets(new_prefix=64))
    return str(IPv6Network((int(first.network_address) + (1 << 20), 108)))
