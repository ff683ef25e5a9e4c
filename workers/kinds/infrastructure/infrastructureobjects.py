"""An Infrastructure: its validated spec and networks, the desired objects, and the status. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import combinations
from typing import Any, NamedTuple

from clouds.frame.infrastructure import Opening, Subnet
from windowbox.errors import Malformed
from windowbox.models import addresses
from windowbox.models.addresses import Network
from windowbox.models.objects import Object
from windowbox.models.refs import IP_POOLS, NAMESPACES, NETWORK_POLICIES, SECRETS
from windowbox.settings.kindsettings import InfrastructureSettings
from workers.core.lifecycle.actuators import Status
from workers.core.lifecycle.shootfacts import MOST_NETWORKS, ShootFacts
from workers.core.owned import ownerindex
from workers.core.owned.manifests import Manifest, manifest

_MAX_FIELDS = 5
"""Fields named in an error."""


class ProviderSecret(NamedTuple):
    """The Secret with the kubeconfig of the provider cluster."""

    namespace: str
    name: str


def provider_secret(infrastructure: Object) -> ProviderSecret:
    secret = infrastructure.spec.get("secretRef") or {}
    name, namespace = secret.get("name"), secret.get("namespace")
    if not name:
        raise Malformed("spec.secretRef.name is not set: name the Secret with the provider's kubeconfig")
    found = ProviderSecret(str(namespace or infrastructure.namespace), str(name))
    for field, value in found._asdict().items():
        try:
            SECRETS.path(value)
        except Malformed:
            raise Malformed(
                f"spec.secretRef.{field} is {value!r:.80}: give the {field} of the Secret with the "
                "provider's kubeconfig"
            ) from None
    return found


def check_provider_config(infrastructure: Object) -> None:
    """Refuse configuration that would be ignored: type local has none."""
    if config := infrastructure.spec.get("providerConfig"):
        fields = ", ".join(f"{name!s:.80}: {config[name]!r:.80}" for name in sorted(config)[:_MAX_FIELDS])
        raise Malformed(
            f"spec.providerConfig of an Infrastructure of type local has no fields, but there are {fields}; "
            "remove spec.provider.infrastructureConfig from the Shoot"
        )


_VERSIONS = {"IPv4": 4, "IPv6": 6}


@dataclass(frozen=True)
class Networks:
    """The networks of a Shoot, and the machine network of each IP family."""

    nodes: tuple[Network, ...]
    pods: tuple[Network, ...]
    services: tuple[Network, ...]
    machines: Mapping[str, Network]
    """By IP family, without families that have no node network."""


def networks(shoot: ShootFacts) -> Networks:
    nodes, pods, services = (
        _parsed(name, cidrs)
        for name, cidrs in (("nodes", shoot.nodes), ("pods", shoot.pods), ("services", shoot.services))
    )
    if not nodes:
        raise Malformed("spec.networking.nodes of the Shoot is not set: give it a CIDR such as 10.0.0.0/16")
    by_name = {"nodes": nodes, "pods": pods, "services": services}
    named = [(name, network) for name, found in by_name.items() for network in found]
    for (one, a), (other, b) in combinations(named, 2):
        if one != other and a.version == b.version and a.overlaps(b):
            raise Malformed(
                f"spec.networking of the Shoot: {one} {a} and {other} {b} overlap; give each its own range"
            )
    machines: dict[str, Network] = {}
    for family in shoot.ip_families:
        version = _VERSIONS.get(family)
        if version is None:
            raise Malformed(f"spec.networking.ipFamilies of the Shoot: {family!r} is neither IPv4 nor IPv6")
        if network := next((one for one in nodes if one.version == version), None):
            machines[family] = network
    if not machines:
        families = ", ".join(shoot.ip_families)
        raise Malformed(
            f"spec.networking.nodes of the Shoot: {nodes[0]} is not of its ipFamilies ({families}); "
            "correct one of the two"
        )
    return Networks(nodes, pods, services, machines)


def _parsed(name: str, cidrs: Collection[str]) -> tuple[Network, ...]:
    if len(cidrs) > MOST_NETWORKS:
        raise Malformed(
            f"spec.networking.{name} and status.networking.{name} of the Shoot have more than "
            f"{MOST_NETWORKS} CIDRs; remove some"
        )
    found: dict[Network, None] = {}
    try:
        for cidr in cidrs:
            if addresses.prefix(cidr) is None:
                raise ValueError(f"{cidr!r:.60} does not look like 10.0.0.0/16 or fd00:10::/64")
            found[ip_network(cidr)] = None  # spec and status may spell one network in two ways
    except ValueError as error:
        raise Malformed(f"spec.networking.{name} of the Shoot: {error}; correct the CIDR") from error
    return tuple(found)


ROLE, INFRA = "gardener.cloud/role", "infra"


def namespace(name: str) -> Manifest:
    return manifest(NAMESPACES, name, labels={ROLE: INFRA})


def made_before(infrastructure: Object) -> bool:
    """Whether it has been reconciled successfully before."""
    return bool(infrastructure.status.get("networking") or infrastructure.status.get("providerStatus"))


def is_ours(namespace: Object, infrastructure: Object) -> bool:
    """Whether the namespace was created for the Infrastructure, perhaps by another seed or program.

    After a success it was, even if our label was removed since.
    """
    return namespace.labels.get(ROLE) == INFRA or made_before(infrastructure)


def check_ownership(namespace: Object, infrastructure: Object) -> None:
    if not is_ours(namespace, infrastructure):
        raise Malformed(
            f"namespace {namespace.name} of the provider cluster belongs to another program: it has no label "
            f"{ROLE}={INFRA}; delete it, or give it this label to have it taken over"
        )


def technical_id(pool_name: str) -> str:
    """The Shoot whose address pool has this name; empty if it is none of a Shoot."""
    match = re.fullmatch(r"shoot-machine-pods-([^.]+)(?:\..+)?-ipv[46]", pool_name)
    return match[1] if match else ""


def pools(technical_id: str, networks: Networks, home: str, home_uid: str) -> list[Manifest]:
    """The address pools of the machines, one per family. Garbage collected with the namespace `home`."""
    return [
        _pool(ownerindex.machine_ip_pool(technical_id, family), network, home, home_uid)
        for family, network in networks.machines.items()
    ]


def subnet_pools(technical_id: str, subnets: Iterable[Subnet], home: str, home_uid: str) -> list[Manifest]:
    """The same for the subnets of a cloud."""
    return [
        _pool(subnet_pool(technical_id, subnet), ip_network(subnet.cidr), home, home_uid)
        for subnet in subnets
    ]


def subnet_pool(technical_id: str, subnet: Subnet) -> str:
    """The name of the address pool of a subnet."""
    family = f"IPv{ip_network(subnet.cidr).version}"
    return ownerindex.machine_ip_pool(technical_id, family, subnet.zone)


def _pool(name: str, network: Network, home: str, home_uid: str) -> Manifest:
    return manifest(
        IP_POOLS,
        name,
        owners=[{"apiVersion": "v1", "kind": "Namespace", "name": home, "uid": home_uid}],
        spec={
            "cidr": str(network),
            "ipipMode": "Always" if network.version == 4 else "Never",
            "natOutgoing": True,
            "nodeSelector": "!all()",  # never chosen by Calico itself
        },
    )


def status(networks: Networks) -> Status:
    """The status, as a merge patch that removes networks the Shoot does not have."""
    named = {"nodes": networks.nodes, "pods": networks.pods, "services": networks.services}
    networking: dict[str, Any] = {name: [str(n) for n in found] or None for name, found in named.items()}
    return {"networking": networking, "egressCIDRs": [str(n) for n in networks.nodes]}


LABELS = {"app.kubernetes.io/managed-by": "provider-local"}
ALLOW, DENY, BALANCERS, GROUP = (
    "provider-local-allow-machine-pods",
    "provider-local-deny-all",
    "allow-load-balancers",
    "security-group",
)
POLICIES = (ALLOW, DENY, BALANCERS, GROUP)

_BOTH = ["Ingress", "Egress"]
_NODE_PORTS = {"port": 30000, "endPort": 32767}
_HEALTH = {"protocol": "TCP", "port": 10256}
"""kube-proxy's health port. The health check ports of Services are node ports."""
_INTERNET = (
    ("0.0.0.0/0", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")),
    ("::/0", ("fe80::/10", "fc00::/7")),
)


def policies(namespace: str, settings: InfrastructureSettings, *, self_hosted: bool) -> list[Manifest]:
    """All policies of the namespace. The allowing one comes first, so that machines are never cut off."""
    return [
        allow_machines(namespace, settings, self_hosted=self_hosted),
        _policy(DENY, namespace, {"podSelector": {}, "policyTypes": _BOTH}),
        allow_balancers(namespace, settings.node_networks),
    ]


def allow_machines(namespace: str, settings: InfrastructureSettings, *, self_hosted: bool) -> Manifest:
    machines = _pods("machine")
    ingress: list[dict[str, Any]] = [
        {
            "from": _blocks(settings.node_networks),
            "ports": [{"protocol": "TCP", **_NODE_PORTS}, _HEALTH],
        },
        {"from": [_pods("bastion")], "ports": [_port(22)]},
        {"from": [machines]},
    ]
    if self_hosted:
        ingress.append({"from": _blocks(settings.balancers), "ports": [_port(443)]})
    gateways = {
        "namespaceSelector": {"matchLabels": {"gardener.cloud/role": "istio-ingress"}},
        "podSelector": {"matchLabels": {"app": "istio-ingressgateway"}},
    }
    internet = [{"ipBlock": {"cidr": cidr, "except": list(private)}} for cidr, private in _INTERNET]
    egress: list[dict[str, Any]] = [
        {"to": [gateways], "ports": [_port(8132), _port(8443), _port(9443)]},
        {"to": _blocks(settings.dns), "ports": [_port(53, "UDP"), _port(53)]},
        {"to": internet},
        {"to": _blocks(settings.external)},
        {"to": [machines]},
        {"to": _blocks(settings.node_networks)},
    ]
    spec = {
        "podSelector": machines["podSelector"],
        "policyTypes": _BOTH,
        "ingress": ingress,
        "egress": egress,
    }
    return _policy(ALLOW, namespace, spec)


def allow_balancers(namespace: str, sources: Iterable[Network]) -> Manifest:
    """Allows load balancers at `sources` to reach node ports and the health check port of machines.

    UDP is why it exists: the policy for machines allows TCP only.
    """
    ports = [{"protocol": "TCP", **_NODE_PORTS}, {"protocol": "UDP", **_NODE_PORTS}, _HEALTH]
    blocks = _blocks(sources)
    # A rule without peers would admit everybody.
    ingress = [{"from": blocks, "ports": ports}] if blocks else []
    spec = {**_pods("machine"), "policyTypes": ["Ingress"], "ingress": ingress}
    return _policy(BALANCERS, namespace, spec)


def security_group(namespace: str, openings: Iterable[Opening]) -> Manifest:
    """What the security group of a cloud lets in, besides what machines need of their host."""
    ingress = []
    for one in openings:
        ports: dict[str, Any] = {"protocol": one.protocol}
        if one.first:
            ports |= {"port": one.first, "endPort": one.last}
        ingress.append({"from": [{"ipBlock": {"cidr": one.source}}], "ports": [ports]})
    spec = {**_pods("machine"), "policyTypes": ["Ingress"], "ingress": ingress}
    return _policy(GROUP, namespace, spec)


def _policy(name: str, namespace: str, spec: dict[str, Any]) -> Manifest:
    return manifest(NETWORK_POLICIES, name, namespace, labels=LABELS, spec=spec)


def _pods(app: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {"app": app}}}


def _blocks(networks: Iterable[Network]) -> list[dict[str, Any]]:
    return [{"ipBlock": {"cidr": str(network)}} for network in networks]


def _port(number: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"protocol": protocol, "port": number}
