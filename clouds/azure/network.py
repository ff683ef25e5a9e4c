"""The cloud of an Infrastructure of type azure: a resource group, with a virtual network and its subnets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from clouds.azure import infrastructure
from clouds.azure.api import InfrastructureConfig, NatGateway, PublicIP, ZonalNatGateway, ZonalPublicIP
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
    state_object,
)
from clouds.frame.inventory import CloudObject, Found, Reference
from windowbox.errors import Malformed

_VERSION = "azure.provider.extensions.gardener.cloud/v1alpha1"
_MIGRATED = "migration.azure.provider.extensions.gardener.cloud/zone"
"""The zone that keeps the subnet which all zones had: an annotation, and a key in the state (AZU-U5)."""
_TYPES = {
    "resource-group": "Microsoft.Resources/resourceGroups",
    "vnet": "Microsoft.Network/virtualNetworks",
    "route-table": "Microsoft.Network/routeTables",
    "security-group": "Microsoft.Network/networkSecurityGroups",
    "public-ip": "Microsoft.Network/publicIPAddresses",
    "nat-gateway": "Microsoft.Network/natGateways",
    "subnet": "Microsoft.Network/virtualNetworks/subnets",
    "identity": "Microsoft.ManagedIdentity/userAssignedIdentities",
}
"""The types of Azure by our kinds."""


class _Gateway(NamedTuple):
    """The NAT gateway of a subnet."""

    name: str
    zone: str
    """Empty: Azure chooses one."""
    minutes: int | None
    given: list[Reference]
    """The user's addresses; none if it has one of its own."""


class _Part(NamedTuple):
    """A subnet for machines."""

    name: str
    cidr: str
    endpoints: Sequence[str]
    zone: str
    """Empty: for machines of all zones."""
    migrated: bool
    gateway: _Gateway | None


def references(site: Site) -> list[Reference]:
    config = _config(site)
    # The group that would be made may be there already.
    found = [Reference("resource-group", site.technical_id, "spec.region")]
    vnet, identity = config.networks.vnet, config.identity
    if vnet.exists_already:
        found.append(Reference("vnet", f"{vnet.resource_group}/{vnet.name}", "networks.vnet.name"))
    if identity is not None:
        found.append(Reference("identity", f"{identity.resource_group}/{identity.name}", "identity.name"))
    for part in _parts(site, config):
        found += part.gateway.given if part.gateway else []
    return found


def plan(site: Site, found: Found) -> Plan:
    config = _config(site)
    problems = infrastructure.problems(config, site.networking, migrates=False)
    require_valid(chain(problems, unusable(*site.networking.ranges("spec.networking"))))
    group, *uses = references(site)
    if (existing := found.get((group.kind, group.id))) is not None:  # AZU-R1
        location = existing.properties.get("location", site.region)
        if location != site.region:
            raise Malformed(
                f"{group.path}: the resource group {group.id!r:.80} is in {location!r:.80} instead of "
                f"{site.region!r:.80}: delete it"
            )
    parts = list(_parts(site, config))
    for one in uses:
        existing = inventory.required(found, one, site.technical_id)
        if one.kind != "identity":  # identities are of all locations
            inventory.require_properties(existing, one, location=site.region)
    addresses = {part.name: _addresses(site, part.gateway, found) for part in parts if part.gateway}
    objects = tuple(_objects(site, config, parts, addresses))
    sources = [*_vnet_ranges(config, found, parts), *filter(None, [site.networking.pods])]
    return Plan(
        objects=objects,
        provider_status=_status(site, config, parts, found),
        state=_state(site, config, parts, objects, found),
        subnets=tuple(Subnet(part.cidr, part.zone) for part in parts),
        egress=tuple(f"{address}/32" for each in addresses.values() for address in each),
        uses=tuple(uses),
        # As security groups without rules: the network may, others may not until a Service asks for it.
        openings=tuple(Opening(protocol, source=source) for source in sources for protocol in ("TCP", "UDP")),
    )


PLANNER = Planner(references, plan)


def _config(site: Site) -> InfrastructureConfig:
    return decode(InfrastructureConfig, site.config, "spec.providerConfig")


def _parts(site: Site, config: InfrastructureConfig) -> Iterator[_Part]:
    """One for each zone, or one for all. The migrated zone has the names of the one for all."""
    base, networks = site.technical_id, config.networks
    if not config.zones:
        path, gateway = "networks.natGateway", networks.nat_gateway or NatGateway()
        zone = "" if gateway.zone is None else str(gateway.zone)
        made = _gateway(gateway, f"{base}-nat-gateway", zone, gateway.ip_addresses or [], path)
        endpoints = networks.service_endpoints or []
        yield _Part(f"{base}-nodes", networks.workers or "", endpoints, "", False, made)
        return
    migrated = _migrated_zone(site, config)
    for i, one in enumerate(config.zones):
        zone, path, of_zone = str(one.name), f"networks.zones[{i}].natGateway", one.nat_gateway
        suffix = "" if zone == migrated else f"-z{zone}"
        zonal = of_zone or ZonalNatGateway()
        made = _gateway(zonal, f"{base}-nat-gateway{suffix}", zone, zonal.ip_addresses or [], path)
        endpoints = one.service_endpoints or []
        yield _Part(f"{base}-nodes{suffix}", one.cidr, endpoints, zone, zone == migrated, made)


def _gateway(
    given: NatGateway | ZonalNatGateway,
    name: str,
    zone: str,
    addresses: Sequence[PublicIP | ZonalPublicIP],
    path: str,
) -> _Gateway | None:
    if not given.enabled:
        return None
    uses = [
        Reference("public-ip", f"{one.resource_group}/{one.name}", f"{path}.ipAddresses[{i}].name", True)
        for i, one in enumerate(addresses)
    ]
    return _Gateway(name, zone, given.idle_connection_timeout_minutes, uses)


def _former_range(site: Site) -> str:
    """The key, in the state, of the range of the subnet that all zones have."""
    return f"{_TYPES['subnet']}/{site.technical_id}-nodes/cidr"


def _migrated_zone(site: Site, config: InfrastructureConfig) -> str:
    """AZU-U5: the zone that a webhook annotated, or the state names, or that has the former range."""
    before, zones = data_of(site), {str(zone.name): zone.cidr for zone in config.zones}
    former = before.get(_former_range(site), "")
    by_range = [name for name, cidr in zones.items() if cidr == former]
    candidates = [site.annotations.get(_MIGRATED), before.get(_MIGRATED), *by_range]
    return next((one for one in candidates if one in zones), "") or ""


def _addresses(site: Site, gateway: _Gateway, found: Found) -> list[str]:
    """The public addresses of a gateway. In another zone it gets another one."""
    if not gateway.given:
        own = _id(site, "public-ip", site.technical_id, f"{gateway.name}-ip")
        return [inventory.played_address(own, gateway.zone)]
    addresses = []
    for one in gateway.given:
        existing = found[one.kind, one.id]
        inventory.require_properties(existing, one, zone=gateway.zone, sku="Standard")  # AZU-I12
        addresses.append(inventory.address_of(existing, one))
    return addresses


def _vnet_ranges(config: InfrastructureConfig, found: Found, parts: Sequence[_Part]) -> list[str]:
    """The ranges of the virtual network, as far as they are known."""
    vnet, path = config.networks.vnet, "networks.vnet.name"
    if not vnet.exists_already:
        return [vnet.cidr or parts[0].cidr]
    cidr = found["vnet", f"{vnet.resource_group}/{vnet.name}"].properties.get("cidr")
    if cidr is None:
        return [part.cidr for part in parts]
    require_valid(unusable(Cidr(str(cidr), path)))
    return [str(cidr)]


def _id(site: Site, kind: str, group: str, *names: str) -> str:
    """The id of a resource, which is a path; of subnets with the name of their network before theirs."""
    provider, *types = _TYPES[kind].split("/")
    head = f"/subscriptions/{site.credentials['subscription']}/resourceGroups/{group}"
    if kind == "resource-group":
        return head
    return "/".join(
        [head, "providers", provider, *(f"{one}/{name}" for one, name in zip(types, names, strict=True))]
    )


def _vnet(site: Site, config: InfrastructureConfig) -> tuple[str, str]:
    """The resource group and the name of the virtual network."""
    vnet = config.networks.vnet
    return vnet.resource_group or site.technical_id, vnet.name or site.technical_id


def _objects(
    site: Site, config: InfrastructureConfig, parts: Sequence[_Part], addresses: dict[str, list[str]]
) -> Iterator[CloudObject]:
    base, vnet = site.technical_id, config.networks.vnet
    vnet_group, vnet_name = _vnet(site, config)

    def made(kind: str, name: str, **properties: Any) -> CloudObject:
        return CloudObject(kind, _id(site, kind, base, name), name, {"location": site.region, **properties})

    yield made("resource-group", base)
    if not vnet.exists_already:
        cidr, protection = vnet.cidr or parts[0].cidr, vnet.ddos_protection_plan_id
        yield made("vnet", base, cidr=cidr, ddosProtectionPlan=protection)
    yield made("route-table", "worker_route_table")
    yield made("security-group", f"{base}-workers")
    for part in parts:
        if (gateway := part.gateway) is None:
            continue
        name, zone, own = gateway.name, gateway.zone, addresses[part.name]
        # An object in another zone is another one, though its path stays.
        guid = inventory.made_uuid(_id(site, "nat-gateway", base, name), zone)
        if not gateway.given:
            yield made("public-ip", f"{name}-ip", zone=zone, address=own[0], sku="Standard", guid=guid)
        yield made("nat-gateway", name, zone=zone, minutes=gateway.minutes, addresses=own, guid=guid)
    for part in parts:
        properties = {
            "cidr": part.cidr,
            "serviceEndpoints": list(part.endpoints),
            "natGateway": part.gateway.name if part.gateway else None,
            "routeTable": "worker_route_table",
            "securityGroup": f"{base}-workers",
        }
        id_ = _id(site, "subnet", vnet_group, vnet_name, part.name)
        yield CloudObject("subnet", id_, part.name, properties)


def _identity(site: Site, config: InfrastructureConfig, found: Found) -> tuple[str, str] | None:
    """The id and the client id of the identity that machines have."""
    if (identity := config.identity) is None:
        return None
    id_ = _id(site, "identity", identity.resource_group, identity.name)
    existing = found["identity", f"{identity.resource_group}/{identity.name}"]
    return id_, str(existing.properties.get("clientID") or inventory.made_uuid(id_))


def _status(site: Site, config: InfrastructureConfig, parts: Sequence[_Part], found: Found) -> Json:
    base, (vnet_group, vnet_name) = site.technical_id, _vnet(site, config)
    subnets = []
    for part in parts:
        subnet: Json = {"name": part.name, "purpose": "nodes"}
        if part.zone:
            subnet["zone"] = part.zone
        if part.migrated:
            subnet["migrated"] = True
        if part.gateway:
            subnet["natGatewayId"] = _id(site, "nat-gateway", base, part.gateway.name)
        subnets.append(subnet)
    by_gateway = all(part.gateway for part in parts)
    status: Json = {
        "apiVersion": _VERSION,
        "kind": "InfrastructureStatus",
        "networks": {
            "vnet": {
                "name": vnet_name,
                **({"resourceGroup": vnet_group} if config.networks.vnet.exists_already else {}),
            },
            "subnets": subnets,
            "layout": "MultipleSubnet" if config.zones else "SingleSubnet",
            "outboundAccessType": "NATGateway" if by_gateway else "LoadBalancer",
        },
        "resourceGroup": {"name": base},
        "routeTables": [{"purpose": "nodes", "name": "worker_route_table"}],
        "securityGroups": [{"purpose": "nodes", "name": f"{base}-workers"}],
    }
    if (known := _identity(site, config, found)) is not None and config.identity is not None:
        id_, client = known
        acr_access = config.identity.acr_access is True
        status["identity"] = {"id": id_, "clientID": client, "acrAccess": acr_access}
    if config.zoned:
        status["zoned"] = True
    return status


def _state(
    site: Site,
    config: InfrastructureConfig,
    parts: Sequence[_Part],
    objects: Sequence[CloudObject],
    found: Found,
) -> Json:
    data = {f"ids/{_TYPES['vnet']}": _id(site, "vnet", *_vnet(site, config))}
    for one in objects:
        match one.kind:
            case "resource-group" | "route-table" | "security-group":
                data[f"ids/{_TYPES[one.kind]}"] = one.id
            case "nat-gateway" | "subnet":
                data[f"{_TYPES[one.kind]}/{one.name}"] = one.id
            case "public-ip":
                data[f"{_TYPES[one.kind]}/{site.technical_id}/{one.name}"] = one.id
    if (known := _identity(site, config, found)) is not None:
        data["managed_identity_id"], data["managed_identity_client_id"] = known
    if not config.zones:
        data[_former_range(site)] = parts[0].cidr
    if migrated := next((part.zone for part in parts if part.migrated), ""):
        data[_MIGRATED] = migrated
    managed = sorted(({"kind": _TYPES[one.kind], "id": one.id} for one in objects), key=lambda one: one["id"])
    return state_object(_VERSION, data, managedItems=managed)
