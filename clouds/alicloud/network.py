"""The cloud of an Infrastructure of type alicloud: a VPC, a NAT gateway, and a VSwitch in each zone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from clouds.alicloud import images, infrastructure
from clouds.alicloud.api import InfrastructureConfig
from clouds.frame import inventory
from clouds.frame.cidrs import Cidr, unusable
from clouds.frame.decoding import decode
from clouds.frame.infrastructure import (
    Json,
    Opening,
    Plan,
    Planner,
    Site,
    Subnet,
    data_of,
    require_valid,
    require_zones,
)
from clouds.frame.inventory import CloudObject, Found, Reference
from clouds.frame.problems import Problem, forbidden, invalid, required

_VERSION = "alicloud.provider.extensions.gardener.cloud/v1alpha1"
_GATEWAY_ZONES = "natgw-zones"
"""The kind of the object that lists the zones of a region with Enhanced NAT gateways."""
_FROM_VPC = ((1, 22), (24, 513), (515, 65535))
"""Telnet and the remote shell stay shut."""
_SUFFIX = re.compile(r"z[0-9]{1,4}")


class _Zone(NamedTuple):
    """A zone and its objects."""

    name: str
    cidr: str
    suffix: str
    vswitch: str
    own_eip: str
    """The allocation that is made for it; empty if the user has prepared one."""
    address: str
    """Of its egress."""


def references(site: Site) -> list[Reference]:
    config = _config(site)
    found = [Reference(_GATEWAY_ZONES, site.region, "networks.zones[0].name")]
    if (vpc := config.networks.vpc.id) is not None:
        found.append(Reference("vpc", vpc, "networks.vpc.id"))
    for i, zone in enumerate(config.networks.zones):
        if zone.nat_gateway is not None and (eip := zone.nat_gateway.eip_allocation_id) is not None:
            path = f"networks.zones[{i}].natGateway.eipAllocationID"
            found.append(Reference("eip", eip, path, exclusive=True))
    return found


def plan(site: Site, found: Found) -> Plan:
    config = _config(site)
    require_zones([zone.name for zone in config.networks.zones], "networks.zones")
    require_valid(_problems(site, config))
    uses = [one for one in references(site) if one.kind != _GATEWAY_ZONES]
    existing = {one: inventory.required(found, one, site.technical_id) for one in uses}
    data = _shared_data(site, config)
    cidr = config.networks.vpc.cidr
    for use, one in existing.items():
        if use.kind == "vpc":
            cidr = str(one.properties.get("cidr") or site.networking.nodes or "")
            require_valid(unusable(Cidr(cidr, f"{use.path}: cidr of the vpc")))
            if not _manages_gateway(config):
                data["NatGateway"] = _users_gateway(one, use)
    if _manages_gateway(config):
        require_valid(_gateway_problems(site, config, found))
    addresses = {
        use.path: inventory.address_of(one, use) for use, one in existing.items() if use.kind == "eip"
    }
    zones = list(_zones(site, config, addresses))
    for zone in zones:
        data |= {f"Zones/{zone.name}/{name}": value for name, value in _zone_data(zone).items()}
    return Plan(
        objects=tuple(_objects(site, config, data, zones)),
        provider_status=_status(site, data, zones),
        state={"apiVersion": _VERSION, "kind": "FlowState", "data": data},
        subnets=tuple(Subnet(zone.cidr, zone.name) for zone in zones),
        egress=tuple(f"{zone.address}/32" for zone in zones),
        uses=tuple(uses),
        openings=tuple(_openings(cidr or "", site.networking.pods)),
    )


PLANNER = Planner(references, plan)


def _config(site: Site) -> InfrastructureConfig:
    return decode(InfrastructureConfig, site.config, "spec.providerConfig")


def _manages_gateway(config: InfrastructureConfig) -> bool:
    vpc = config.networks.vpc
    return vpc.id is None or bool(vpc.gardener_managed_nat_gateway)


def _problems(site: Site, config: InfrastructureConfig) -> Iterator[Problem]:
    """Of the config, without what the account has."""
    zones, used = config.networks.zones, set[str]()
    yield from infrastructure.problems(config, site.networking)
    yield from unusable(*site.networking.ranges("spec.networking"))
    for i, zone in enumerate(zones):
        if not (zone.workers or zone.worker):
            yield required(f"networks.zones[{i}].workers", "give the range of the zone's machines")
        eip = zone.nat_gateway.eip_allocation_id if zone.nat_gateway else None
        if eip in used:
            path = f"networks.zones[{i}].natGateway.eipAllocationID"
            yield forbidden(path, "another zone has this EIP: choose one for each")
        used |= {eip} if eip else set()


def _users_gateway(vpc: CloudObject, use: Reference) -> str:
    """ALI-R1: the NAT gateway that the VPC has."""
    if not vpc.properties.get("natGateway", True):
        detail = "no user natgateway found: add one to the VPC, or set gardenerManagedNATGateway"
        require_valid([invalid(use.path, use.id, detail)])
    return inventory.made_id("ngw-", vpc.id, digits=21)


def _gateway_problems(site: Site, config: InfrastructureConfig, found: Found) -> Iterator[Problem]:
    """ALI-R2: the gateway lies in the first zone. All zones are good if nobody has said which."""
    listed, first = found.get((_GATEWAY_ZONES, site.region)), config.networks.zones[0].name
    given = listed.properties.get("zones") if listed else None
    offered = [str(one) for one in given or sorted(site.profile.zones(site.region) or [first])]
    if first not in offered:
        detail = f"zone {first} does not support enhance natgateway, please use following zones: "
        yield forbidden("networks.zones[0].name", detail + " ".join(offered))


def _id(site: Site, key: str, prefix: str, *more: str) -> str:
    """The id that the state has, which outlives a change of the access key; else a made one."""
    before = data_of(site).get(key, "")
    if re.fullmatch(f"{prefix}[0-9a-f]{{21}}", before):
        return before
    return inventory.made_id(prefix, site.account, site.technical_id, key, *more, digits=21)


def _shared_data(site: Site, config: InfrastructureConfig) -> dict[str, str]:
    """The ids of what all zones share, by their keys in the state."""
    data = {
        "VPC": config.networks.vpc.id or _id(site, "VPC", "vpc-"),
        "NodesSecurityGroup": _id(site, "NodesSecurityGroup", "sg-"),
    }
    if _manages_gateway(config):
        data["NatGateway"] = _id(site, "NatGateway", "ngw-")
    return data


def _zones(site: Site, config: InfrastructureConfig, addresses: dict[str, str]) -> Iterator[_Zone]:
    before, zones = data_of(site), config.networks.zones
    known = {zone.name: before.get(f"Zones/{zone.name}/Suffix", "") for zone in zones}
    used = set(known.values())
    free = (one for i in range(2 * len(zones)) if (one := f"z{i}") not in used)
    for i, zone in enumerate(zones):
        key, suffix = f"Zones/{zone.name}", known[zone.name]
        address, eip = addresses.get(f"networks.zones[{i}].natGateway.eipAllocationID"), ""
        if address is None:
            # After one of the user's there is another than before: the first one was deleted for good.
            former = before.get(f"{key}/NATGatewayElasticIPAddress", "")
            eip = _id(site, f"{key}/NATGatewayElasticIP", "eip-", former)
            address = inventory.played_address(eip)
        yield _Zone(
            zone.name,
            zone.workers or zone.worker,
            suffix if _SUFFIX.fullmatch(suffix) else next(free),
            _id(site, f"{key}/VSwitch", "vsw-"),
            eip,
            address,
        )


def _zone_data(zone: _Zone) -> dict[str, str]:
    data = {
        "Suffix": zone.suffix,
        "VSwitch": zone.vswitch,
        "NATGatewayElasticIPAddress": zone.address,
    }
    return data | ({"NATGatewayElasticIP": zone.own_eip} if zone.own_eip else {})


def _objects(
    site: Site, config: InfrastructureConfig, data: dict[str, str], zones: list[_Zone]
) -> Iterator[CloudObject]:
    name, vpc, gateway = site.technical_id, data["VPC"], data["NatGateway"]

    def made(kind: str, id_: str, named: str, **properties: Any) -> CloudObject:
        return CloudObject(kind, id_, f"{name}-{named}", properties)

    if config.networks.vpc.id is None:
        yield made("vpc", vpc, "vpc", cidr=config.networks.vpc.cidr)
    yield made("security-group", data["NodesSecurityGroup"], "sg", vpc=vpc)
    for zone in zones:
        yield made("vswitch", zone.vswitch, f"{zone.name}-vsw", zone=zone.name, cidr=zone.cidr, vpc=vpc)
    table = inventory.made_id("stb-", gateway, digits=21)
    if _manages_gateway(config):
        yield made("nat-gateway", gateway, "natgw", vpc=vpc, vSwitch=zones[0].vswitch, zone=zones[0].name)
    for zone in zones:
        if zone.own_eip:
            yield made("eip", zone.own_eip, f"eip-natgw-{zone.suffix}", address=zone.address)
        # Another address needs another entry.
        entry = inventory.made_id("snat-", table, zone.vswitch, zone.address, digits=21)
        named = f"snat-{zone.suffix}-{table}"
        yield made("snat-entry", entry, named, vSwitch=zone.vswitch, address=zone.address, natGateway=gateway)


def _openings(vpc: str, pods: str | None) -> Iterator[Opening]:
    yield Opening("TCP", 30000, 32767)
    for protocol in ("TCP", "UDP"):
        yield from (Opening(protocol, first, last, vpc) for first, last in _FROM_VPC)
        if pods is not None:
            yield Opening(protocol, source=pods)


def _status(site: Site, data: dict[str, str], zones: list[_Zone]) -> Json:
    status: Json = {
        "apiVersion": _VERSION,
        "kind": "InfrastructureStatus",
        "vpc": {
            "id": data["VPC"],
            "vswitches": [{"purpose": "nodes", "id": zone.vswitch, "zone": zone.name} for zone in zones],
            "securityGroups": [{"purpose": "nodes", "id": data["NodesSecurityGroup"]}],
        },
        "keyPairName": "",
    }
    if found := images.of_pools(site):
        status["machineImages"] = found
    return status
