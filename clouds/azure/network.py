"""The cloud of an Infrastructure of type azure: a resource group, with a virtual network and its subnets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from clouds.azure import infrastructure
from clouds.azure.api import InfrastructureConfig, NatGateway, ZonalNatGateway
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
_ROUTES = "worker_route_table"

_G = TypeVar("_G", NatGateway, ZonalNatGateway)


class _Part(NamedTuple):
    """A subnet for machines, and its NAT gateway."""

    suffix: str
    """Of its names: empty for the one subnet of all zones, and for the zone that took it over."""
    zone: str
    """Empty: for machines of all zones."""
    cidr: str
    endpoints: Sequence[str] | None
    gateway: NatGateway | ZonalNatGateway | None
    gateway_zone: str
    """Empty: Azure chooses one."""
    given: Sequence[Reference]
    """The user's addresses of the gateway. Without any it has one of its own."""


def references(site: Site) -> list[Reference]:
    config = _config(site)
    # The group that would be made may be there already.
    found = [Reference("resource-group", site.technical_id, "spec.region")]
    vnet, identity = config.networks.vnet, config.identity
    if vnet.exists_already:
        found.append(Reference("vnet", f"{vnet.resource_group}/{vnet.name}", "networks.vnet.name"))
    if identity is not None:
        found.append(Reference("identity", f"{identity.resource_group}/{identity.name}", "identity.name"))
    return [*found, *(one for part in _parts(site, config) for one in part.given)]


def plan(site: Site, found: Found) -> Plan:
    config = _config(site)
    require_zones([str(zone.name) for zone in config.zones], "networks.zones")
    problems = infrastructure.problems(config, site.networking, migrates=False)
    require_valid(chain(problems, unusable(*site.networking.ranges("spec.networking"))))
    uses, parts = _uses(site, found), list(_parts(site, config))
    egress = [_addresses(site, part, found) for part in parts]
    objects = tuple(_objects(site, config, parts, egress))
    sources = [*_vnet_ranges(config, found, parts), *filter(None, [site.networking.pods])]
    identity = _identity(site, config, found)
    return Plan(
        objects=objects,
        provider_status=_status(site, config, objects, identity),
        state=_state(site, config, parts, objects, identity),
        subnets=tuple(Subnet(part.cidr, part.zone) for part in parts),
        egress=tuple(f"{address}/32" for each in egress for address in each),
        uses=tuple(uses),
        # As security groups without rules: the network may, others may not until a Service asks for it.
        openings=tuple(Opening(protocol, source=source) for source in sources for protocol in ("TCP", "UDP")),
    )


PLANNER = Planner(references, plan)


def _config(site: Site) -> InfrastructureConfig:
    return decode(InfrastructureConfig, site.config, "spec.providerConfig")


def _uses(site: Site, found: Found) -> list[Reference]:
    """AZU-R1: what exists is there, and where the Shoot is."""
    group, *uses = references(site)
    if existing := found.get((group.kind, group.id)):
        location = existing.properties.get("location", site.region)
        if location != site.region:
            raise Malformed(
                f"{group.path}: the resource group {group.id!r:.80} is in {location!r:.80} instead of "
                f"{site.region!r:.80}: delete it"
            )
    for one in uses:
        existing = inventory.required(found, one, site.technical_id)
        if one.kind != "identity":  # identities are of all locations
            inventory.require_properties(existing, one, location=site.region)
    return uses


def _parts(site: Site, config: InfrastructureConfig) -> Iterator[_Part]:
    """One for each zone, or one for all."""
    networks, migrated = config.networks, _migrated_zone(site, config)
    if not config.zones:
        gateway, path = _enabled(networks.nat_gateway), "networks.natGateway"
        zone = str(gateway.zone) if gateway and gateway.zone is not None else ""
        given = _given(gateway, path)
        yield _Part("", "", networks.workers or "", networks.service_endpoints, gateway, zone, given)
    for i, one in enumerate(config.zones):
        zone, zonal = str(one.name), _enabled(one.nat_gateway)
        suffix, given = (
            "" if zone == migrated else f"-z{zone}",
            _given(zonal, f"networks.zones[{i}].natGateway"),
        )
        yield _Part(suffix, zone, one.cidr, one.service_endpoints, zonal, zone, given)


def _enabled(gateway: _G | None) -> _G | None:
    return gateway if gateway and gateway.enabled else None


def _given(gateway: NatGateway | ZonalNatGateway | None, path: str) -> list[Reference]:
    return [
        Reference("public-ip", f"{one.resource_group}/{one.name}", f"{path}.ipAddresses[{i}].name", True)
        for i, one in enumerate((gateway and gateway.ip_addresses) or [])
    ]


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


def _addresses(site: Site, part: _Part, found: Found) -> list[str]:
    """The public addresses of a part's gateway. In another zone it gets another one."""
    if part.gateway and not part.given:
        own = _id(site, "public-ip", site.technical_id, f"{site.technical_id}-nat-gateway{part.suffix}-ip")
        return [inventory.played_address(own, part.gateway_zone)]
    addresses = []
    for one in part.given:
        existing = found[one.kind, one.id]
        inventory.require_properties(existing, one, zone=part.gateway_zone, sku="Standard")  # AZU-I12
        addresses.append(inventory.address_of(existing, one))
    return addresses


def _vnet_ranges(config: InfrastructureConfig, found: Found, parts: Sequence[_Part]) -> list[str]:
    """The ranges of the virtual network, as far as they are known."""
    vnet = config.networks.vnet
    if not vnet.exists_already:
        return [vnet.cidr or parts[0].cidr]
    cidr = found["vnet", f"{vnet.resource_group}/{vnet.name}"].properties.get("cidr")
    if cidr is None:
        return [part.cidr for part in parts]
    require_valid(unusable(Cidr(str(cidr), "networks.vnet.name")))
    return [str(cidr)]


def _id(site: Site, kind: str, group: str, *names: str) -> str:
    """The id of a resource, which is a path; of subnets with the name of their network before theirs."""
    provider, *types = _TYPES[kind].split("/")
    head = f"/subscriptions/{site.credentials['subscription']}/resourceGroups/{group}"
    if kind == "resource-group":
        return head
    path = (f"{one}/{name}" for one, name in zip(types, names, strict=True))
    return "/".join([head, "providers", provider, *path])


def _vnet(site: Site, config: InfrastructureConfig) -> tuple[str, str]:
    """The resource group and the name of the virtual network."""
    vnet = config.networks.vnet
    return vnet.resource_group or site.technical_id, vnet.name or site.technical_id


def _objects(
    site: Site, config: InfrastructureConfig, parts: Sequence[_Part], egress: Sequence[list[str]]
) -> Iterator[CloudObject]:
    base, vnet = site.technical_id, config.networks.vnet

    def made(kind: str, name: str, **properties: Any) -> CloudObject:
        return CloudObject(kind, _id(site, kind, base, name), name, {"location": site.region, **properties})

    yield made("resource-group", base)
    if not vnet.exists_already:
        protection = vnet.ddos_protection_plan_id
        yield made("vnet", base, cidr=vnet.cidr or parts[0].cidr, ddosProtectionPlan=protection)
    yield made("route-table", _ROUTES)
    yield made("security-group", f"{base}-workers")
    for part, addresses in zip(parts, egress, strict=True):
        properties = {"cidr": part.cidr, "zone": part.zone, "serviceEndpoints": list(part.endpoints or [])}
        if part.gateway:
            name, zone = f"{base}-nat-gateway{part.suffix}", part.gateway_zone
            # An object in another zone is another one, though its path stays.
            guid = inventory.made_uuid(_id(site, "nat-gateway", base, name), zone)
            if not part.given:
                yield made("public-ip", f"{name}-ip", zone=zone, address=addresses[0], guid=guid)
            minutes = part.gateway.idle_connection_timeout_minutes
            gateway = made("nat-gateway", name, zone=zone, minutes=minutes, addresses=addresses, guid=guid)
            yield gateway
            properties["natGateway"] = gateway.id
        name = f"{base}-nodes{part.suffix}"
        yield CloudObject("subnet", _id(site, "subnet", *_vnet(site, config), name), name, properties)


def _identity(site: Site, config: InfrastructureConfig, found: Found) -> Json:
    """The identity that machines have, as in the status; empty if they have none."""
    if (identity := config.identity) is None:
        return {}
    id_ = _id(site, "identity", identity.resource_group, identity.name)
    existing = found["identity", f"{identity.resource_group}/{identity.name}"]
    client = str(existing.properties.get("clientID") or inventory.made_uuid(id_))
    return {"id": id_, "clientID": client, "acrAccess": identity.acr_access is True}


def _status(site: Site, config: InfrastructureConfig, objects: Sequence[CloudObject], identity: Json) -> Json:
    base, (vnet_group, vnet_name) = site.technical_id, _vnet(site, config)
    subnets: list[Json] = []
    for one in objects:
        if one.kind == "subnet":
            zone, gateway = one.properties["zone"], one.properties.get("natGateway")
            migrated = bool(zone) and one.name == f"{base}-nodes"
            more = {"zone": zone, "migrated": migrated, "natGatewayId": gateway}
            subnets.append(
                {"name": one.name, "purpose": "nodes"} | {key: more[key] for key in more if more[key]}
            )
    by_gateway = all("natGatewayId" in one for one in subnets)
    existing = {"resourceGroup": vnet_group} if config.networks.vnet.exists_already else {}
    return {
        "apiVersion": _VERSION,
        "kind": "InfrastructureStatus",
        "networks": {
            "vnet": {"name": vnet_name, **existing},
            "subnets": subnets,
            "layout": "MultipleSubnet" if config.zones else "SingleSubnet",
            "outboundAccessType": "NATGateway" if by_gateway else "LoadBalancer",
        },
        "resourceGroup": {"name": base},
        "routeTables": [{"purpose": "nodes", "name": _ROUTES}],
        "securityGroups": [{"purpose": "nodes", "name": f"{base}-workers"}],
        **({"identity": identity} if identity else {}),
        **({"zoned": True} if config.zoned else {}),
    }


def _state(
    site: Site,
    config: InfrastructureConfig,
    parts: Sequence[_Part],
    objects: Sequence[CloudObject],
    identity: Json,
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
    if identity:
        data |= {"managed_identity_id": identity["id"], "managed_identity_client_id": identity["clientID"]}
    for part in parts:
        if not part.suffix:
            data |= {_MIGRATED: part.zone} if part.zone else {_former_range(site): part.cidr}
    managed = sorted(({"kind": _TYPES[one.kind], "id": one.id} for one in objects), key=lambda one: one["id"])
    return state_object(_VERSION, data, managedItems=managed)
