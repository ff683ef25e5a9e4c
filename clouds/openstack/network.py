"""The cloud of an Infrastructure of type openstack: a network with one subnet, and a router."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from clouds.frame import inventory
from clouds.frame.decoding import decode
from clouds.frame.infrastructure import Json, Plan, Planner, Site, Subnet, require_valid, state_object
from clouds.frame.inventory import CloudObject, Found, Reference
from clouds.openstack import infrastructure
from clouds.openstack.api import CloudProfileConfig, FloatingPool, InfrastructureConfig
from clouds.openstack.constraints import floatingpools
from windowbox.errors import Malformed

_VERSION = "openstack.provider.extensions.gardener.cloud/v1alpha1"
_ADDRESSES = "externalFixedIPs"


def references(site: Site) -> list[Reference]:
    """What the user has prepared, and a floating pool for which the CloudProfile has a wildcard only.

    Pools that the CloudProfile has by their names are the operator's, and exist.
    """
    config, profile = _configs(site)
    pool, networks = config.floating_pool_name, config.networks
    found = []
    if not any(one.name == pool and one.region in (None, site.region) for one in _pools(profile)):
        found.append(Reference("floating-pool", pool, "floatingPoolName"))
    if networks.id is not None:
        found.append(Reference("network", networks.id, "networks.id"))
    if networks.router is not None:
        found.append(Reference("router", networks.router.id, "networks.router.id"))
    return found


def plan(site: Site, found: Found) -> Plan:
    config, profile = _configs(site)
    require_valid(infrastructure.problems(config, site.networking))
    uses = {one.kind: one for one in references(site)}
    existing = {
        kind: inventory.required(found, one, site.technical_id) for kind, one in uses.items()
    }  # OST-R1
    data = _data(site, config, profile, existing.get("network"))
    if "router" in uses:
        addresses = _addresses(existing["router"], uses["router"])
    else:
        addresses = [inventory.played_address(data["Router"])]
    return Plan(
        objects=tuple(_objects(site, config, profile, data, addresses)),
        provider_status=_status(data, addresses),
        state=state_object(_VERSION, data),
        subnets=(Subnet(_workers(config)),),
        egress=tuple(f"{one}/{ip_address(one).max_prefixlen}" for one in addresses),
        uses=tuple(uses.values()),
    )


PLANNER = Planner(references, plan)


def _configs(site: Site) -> tuple[InfrastructureConfig, CloudProfileConfig]:
    config = decode(InfrastructureConfig, site.config, "spec.providerConfig")
    where = "spec.providerConfig of the CloudProfile"
    return config, decode(CloudProfileConfig, site.profile.provider_config, where, kind_optional=True)


def _pools(profile: CloudProfileConfig) -> list[FloatingPool]:
    return profile.constraints.floating_pools


def _workers(config: InfrastructureConfig) -> str:
    return config.networks.workers or config.networks.worker


def _data(
    site: Site, config: InfrastructureConfig, profile: CloudProfileConfig, network: CloudObject | None
) -> dict[str, str]:
    """The ids and names of all objects, by their keys in the state."""
    name, networks = site.technical_id, config.networks
    pool, subnet = config.floating_pool_name, config.floating_pool_subnet_name

    def made(kind: str) -> str:
        return inventory.made_uuid(site.account, name, kind)

    data = {
        "FloatingNetwork": inventory.made_uuid(site.account, site.region, "floating-pool", pool),
        "FloatingNetworkName": pool,
        "Router": networks.router.id if networks.router else made("router"),
        "Network": network.id if network else made("network"),
        "NetworkName": str(network.properties.get("name", "")) if network else name,
        "Subnet": made("subnet"),
        "SecurityGroup": made("security-group"),
        "SecurityGroupName": name,
        "KeyPair": name,
    }
    if networks.router is None:
        if subnet is None:
            # The domain does not count here.
            chosen = floatingpools.choice(_pools(profile), "", site.region, pool)
            subnet = chosen.default_floating_subnet if isinstance(chosen, FloatingPool) else None
        if subnet is not None:
            data["FloatingPoolSubnetName"] = subnet
    if networks.is_shared:
        data |= {"ShareNetwork": made("share-network"), "ShareNetworkName": name}
    return data


def _addresses(router: CloudObject, used: Reference) -> list[str]:
    """OST-R2: the external addresses of an existing router; a made-up one if nobody has said which it has."""
    given = router.properties.get(_ADDRESSES, [inventory.played_address(router.id)])
    wrong = "expected at least one external fixed ip"
    if isinstance(given, list) and given:
        try:
            return [str(ip_address(str(one))) for one in given]
        except ValueError as error:
            wrong = str(error)
    raise Malformed(
        f"{used.path}: Invalid value: {used.id!r:.80}: {wrong:.80}: correct {_ADDRESSES} of the router"
    )


def _objects(
    site: Site,
    config: InfrastructureConfig,
    profile: CloudProfileConfig,
    data: dict[str, str],
    addresses: list[str],
) -> Iterator[CloudObject]:
    name, network = site.technical_id, data["Network"]
    if config.networks.router is None:
        properties = {
            _ADDRESSES: addresses,
            "externalNetwork": data["FloatingNetwork"],
            "externalSubnetName": data.get("FloatingPoolSubnetName"),
            "enableSNAT": profile.use_snat,
        }
        yield CloudObject("router", data["Router"], name, properties)
    if config.networks.id is None:
        yield CloudObject("network", network, name)
    subnet = {"cidr": _workers(config), "network": network, "dnsServers": profile.dns_servers}
    yield CloudObject("subnet", data["Subnet"], name, subnet)
    port = inventory.made_uuid(site.account, data["Router"], data["Subnet"])
    yield CloudObject("router-interface", port, "", {"router": data["Router"], "subnet": data["Subnet"]})
    yield CloudObject("security-group", data["SecurityGroup"], name)
    # Nova replaces a key pair whose public key changes by one of the same name, which is its id.
    fingerprint = inventory.fingerprint(site.ssh_public_key)
    yield CloudObject("key-pair", name, name, {"fingerprint": fingerprint})
    if "ShareNetwork" in data:
        share = {"network": network, "subnet": data["Subnet"]}
        yield CloudObject("share-network", data["ShareNetwork"], name, share)


def _status(data: dict[str, str], addresses: list[str]) -> Json:
    networks: Json = {
        "id": data["Network"],
        "name": data["NetworkName"],
        "floatingPool": {"id": data["FloatingNetwork"], "name": data["FloatingNetworkName"]},
        "router": {"id": data["Router"], "ip": addresses[0], "externalFixedIP": addresses},
        "subnets": [{"purpose": "nodes", "id": data["Subnet"]}],
    }
    if "ShareNetwork" in data:
        networks["shareNetwork"] = {"id": data["ShareNetwork"], "name": data["ShareNetworkName"]}
    group = {"purpose": "nodes", "id": data["SecurityGroup"], "name": data["SecurityGroupName"]}
    return {
        "apiVersion": _VERSION,
        "kind": "InfrastructureStatus",
        "networks": networks,
        "node": {"keyName": data["KeyPair"]},
        "securityGroups": [group],
    }
