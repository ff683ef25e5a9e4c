"""The demand of a Service. Rules LB-7-* of docs/contract-coverage.md."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

from clouds.frame.balancers import Balancer
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.loadbalancers import FAMILIES, KUBE_PROXY_PORT, Family, Protocol, family
from windowbox.models.objects import Json, Object, mapping
from windowbox.settings.lbsettings import LoadBalancerSettings, families_for, matches
from workers.loadbalancer.spec import cloudterms, fields, options
from workers.loadbalancer.spec.options import Options, Refusal

MAX_PORTS = 250
"""Ports of one Service that are served. Each is a listener and a cluster of the shared Envoy."""
MAX_RULES = 10_000
"""Ports times source ranges of one Service: each listener repeats the ranges, and Envoy rereads all of them
whenever any Service changes."""

MAX_ENDPOINTS = 300_000
"""Ports times nodes of all Services of one cluster. Envoy holds each as an endpoint, and reads all of them
again when the health of a node changes."""

Place = tuple[int, str]
"""A port's number and protocol."""


@dataclass(frozen=True)
class Port:
    """A port at which clients are served."""

    name: str
    port: int
    protocol: Protocol
    node_port: int | None
    """None: traffic goes to the Pods."""
    target: int | str
    """The number or name of the Pods' port."""

    @property
    def place(self) -> str:
        """`80/TCP`, as people write it."""
        return f"{self.port}/{self.protocol}"


@dataclass(frozen=True, kw_only=True)
class Demand(Options):
    """All that a Service asks of its load balancer, as far as it is valid."""

    uid: str
    families: tuple[Family, ...]
    """IPv4 first."""
    ports: tuple[Port, ...]
    """Those that can be served. Without any, the Service gets no address."""
    local: bool
    """externalTrafficPolicy Local: only nodes with Pods of the Service get its traffic."""
    health_port: int
    affinity: bool
    content: bool = False
    """One family is better than none (PreferDualStack)."""
    backends: Family | None = None
    """The family of all backends; None: that of the address."""

    @property
    def places(self) -> tuple[str, ...]:
        """Its ports as `80/TCP`."""
        return tuple(port.place for port in self.ports)


def demand_in(
    cluster: str, service: Object, settings: LoadBalancerSettings, facts: CloudFacts | None = None
) -> Demand:
    """The demand of a Service of `cluster`, which may be in a cloud."""
    direct = matches(cluster, settings.direct)
    cloud = cloudterms.balancer(service, facts)
    offered = families_for(cluster, settings.ranges, cloud.range if cloud else "")
    return demand(service, direct=direct, offered=offered, cloud=cloud)


def demand(
    service: Object,
    *,
    direct: bool,
    offered: Collection[Family] = FAMILIES,
    cloud: Balancer | None = None,
) -> Demand:
    """The demand of `service`, as `cloud` would serve it.

    With `direct`, its Pods can be reached without a node port.
    PreferDualStack takes the families that are `offered`. An invalid value becomes a refusal: of its port, or
    of the whole Service if a guess would admit refused clients, or serve what was not asked for.
    """
    spec = service.spec
    asked = families(spec, offered)
    first = primary(spec, asked)
    wanted = cloudterms.families(cloud, asked, first)
    ports, refused = _ports(spec, direct=direct)
    given = options.options(service, wanted)
    if cloud:
        given = cloudterms.applied(given, cloud)
    ranges = len(given.allowed or ())
    too_many_rules = len(ports) * ranges > MAX_RULES
    if too_many_rules:
        note = (
            f"nothing is served: {len(ports)} ports with {ranges} source ranges each are more than "
            f"{MAX_RULES} rules; merge ranges, or move ports to a second Service"
        )
        refused.append(Refusal("TooManyRules", note))
    local = spec.get("externalTrafficPolicy") == "Local"
    return Demand(
        **{**vars(given), "refusals": (*given.refusals, *refused)},
        uid=fields.text(service.metadata.get("uid")),
        families=wanted,
        ports=() if given.fatal or too_many_rules else ports,
        local=local,
        health_port=(local and fields.port_number(spec.get("healthCheckNodePort"))) or KUBE_PROXY_PORT,
        affinity=spec.get("sessionAffinity") == "ClientIP",
        content=spec.get("ipFamilyPolicy") == "PreferDualStack" and wanted == asked,
        backends=first if given.translates else None,
    )


def families(spec: Json, offered: Collection[Family] = FAMILIES) -> tuple[Family, ...]:
    """The families of which a Service asks for an address; PreferDualStack takes those that are `offered`."""
    named: Collection[object] = fields.items(spec.get("ipFamilies"))
    if not any(one in named for one in FAMILIES):
        ips = (fields.address(ip) for ip in [*fields.items(spec.get("clusterIPs")), spec.get("clusterIP")])
        named = [family(ip) for ip in ips if ip is not None] or ["IPv4"]
    found = tuple(one for one in FAMILIES if one in named)
    content = spec.get("ipFamilyPolicy") == "PreferDualStack"
    return (content and tuple(one for one in found if one in offered)) or found


def primary(spec: Json, asked: tuple[Family, ...]) -> Family:
    """The one that the Service lists first, of the families that it asks for."""
    named = fields.items(spec.get("ipFamilies"))
    return asked[-1] if named[:1] == ["IPv6"] else asked[0]


def _ports(spec: Json, *, direct: bool) -> tuple[tuple[Port, ...], list[Refusal]]:
    found: dict[Place, Port] = {}
    refused: list[Refusal] = []
    listed = fields.items(spec.get("ports"))
    for index, given in enumerate(listed[:MAX_PORTS]):
        match _port(mapping(given), f"spec.ports[{index}]", found, direct=direct):
            case Port() as port:
                found[port.port, port.protocol] = port
            case Refusal() as refusal:
                refused.append(refusal)
    if len(listed) > MAX_PORTS:
        note = (
            f"spec.ports lists {len(listed)} ports, of which the first {MAX_PORTS} are served: move others "
            "to a second Service"
        )
        refused.append(Refusal("TooManyPorts", note))
    if not found and not refused:
        refused.append(Refusal("NoPorts", "spec.ports is empty: add a port to serve"))
    return tuple(found.values()), refused


def _port(given: Json, where: str, taken: Collection[Place], *, direct: bool) -> Port | Refusal:
    number = fields.port_number(given.get("port"))
    if number is None:
        note = f"{where}.port is {fields.shown(given.get('port'))}: give a number of 1 to 65535"
        return Refusal("InvalidPort", note)
    name, protocol = fields.text(given.get("name")), given.get("protocol", "TCP")
    if protocol == "SCTP":
        called = f"{number}/SCTP" + (f" ({fields.shown(name)})" if name else "")
        note = (
            f"port {called} is not served: load balancers here carry TCP and UDP, not SCTP; "
            "the Service's other ports are not affected. Use TCP, or reach the Pods by a node port"
        )
        return Refusal("SCTPNotSupported", note, (number, "SCTP"))
    if protocol not in ("TCP", "UDP"):
        note = f"{where}.protocol is {fields.shown(protocol)}: only TCP and UDP are served"
        return Refusal("UnsupportedProtocol", note)
    if (number, protocol) in taken:
        return Refusal("DuplicatePort", f"{where} names port {number}/{protocol} again: remove one of them")
    node_port = fields.port_number(given.get("nodePort"))
    if node_port is None and not direct:
        note = (
            f"port {number}/{protocol} is not served: {where}.nodePort is not set, and Pods of this cluster "
            "cannot be reached directly. Set spec.allocateLoadBalancerNodePorts to true, or give a nodePort"
        )
        return Refusal("NodePortMissing", note, (number, protocol))
    target = given.get("targetPort") or number
    return Port(
        name=name,
        port=number,
        protocol=cast(Protocol, protocol),
        node_port=node_port,
        target=fields.port_number(target) or fields.text(target) or number,
    )
