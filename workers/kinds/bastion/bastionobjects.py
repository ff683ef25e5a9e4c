"""The desired objects of a Bastion, and the source ranges of its load balancer. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv6Address,
    summarize_address_range,
)
from itertools import islice
from typing import Any, NamedTuple

from windowbox.errors import Malformed
from windowbox.models import addresses
from windowbox.models.addresses import Network
from windowbox.models.gardener.bastion import BastionIngress, IPBlock
from windowbox.models.refs import NETWORK_POLICIES, PODS, SECRETS, SERVICES
from workers.core.owned.manifests import Manifest, manifest

_PREFIX = "bastion-"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST = 63
_SSH = "ssh"
_PORT = 22
_MANAGED = {"app.kubernetes.io/managed-by": "provider-local"}
"""Only NetworkPolicies with this label are watched."""
_DNS_APPS = ("kube-dns", "node-local-dns")
# Where NodeLocal DNSCache listens on each node, in IPv4 and IPv6.
_DNS_ADDRESSES = ("169.254.20.10/32", "fd30:1319:f1e:230b::1/128")


@dataclass(frozen=True)
class Site:
    """The namespace and the common name of the objects."""

    namespace: str
    bastion: str

    @property
    def name(self) -> str:
        return _PREFIX + self.bastion

    @property
    def labels(self) -> dict[str, str]:
        return {"app": "bastion", "bastion": self.bastion}


def bastion(name: str) -> str:
    """The Bastion whose objects have this name; empty if there can be none."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else ""


def site(namespace: str, bastion: str) -> Site:
    found = Site(namespace, bastion)
    if len(found.name) > _LONGEST or not _LABEL.fullmatch(bastion):
        raise Malformed(
            f"metadata.name is {bastion!r}, which a Service {found.name!r} cannot be made of: use lower-case "
            f"letters, digits and dashes, {_LONGEST - len(_PREFIX)} at most"
        )
    return found


def secret(at: Site, user_data: str) -> Manifest:
    """The Secret with `user_data`, which is base64 as in the Bastion's spec."""
    try:
        content = base64.b64decode(user_data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed("spec.userData is not base64: encode the script") from error
    data = {"userdata": base64.b64encode(content).decode()}
    return manifest(SECRETS, at.name, at.namespace, labels=at.labels, data=data)


def pod(at: Site, image: str) -> Manifest:
    container = {
        "name": "machine",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "ports": [{"name": _SSH, "containerPort": _PORT, "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": _SSH}, "periodSeconds": 2},
        "volumeMounts": [{"name": "userdata", "mountPath": "/etc/machine"}],
    }
    spec = {
        "automountServiceAccountToken": False,  # a Bastion is reachable from outside
        "terminationGracePeriodSeconds": 2,  # systemd ignores SIGTERM
        "containers": [container],
        "volumes": [{"name": "userdata", "secret": {"secretName": at.name, "defaultMode": 0o777}}],
    }
    return manifest(PODS, at.name, at.namespace, labels=at.labels, spec=spec)


def service(at: Site, sources: Sequence[str]) -> Manifest:
    port = {"name": _SSH, "port": _PORT, "protocol": "TCP", "targetPort": _PORT, "appProtocol": _SSH}
    spec = {
        "type": "LoadBalancer",
        "selector": at.labels,
        "ports": [port],
        "loadBalancerSourceRanges": list(sources),
    }
    return manifest(SERVICES, at.name, at.namespace, labels=at.labels, spec=spec)


def policy(at: Site) -> Manifest:
    """Allows SSH from anywhere: clients arrive with the address of the load balancer, which filters them."""
    kube_system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    dns: list[dict[str, Any]] = [
        {
            **kube_system,
            "podSelector": {"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": [app]}]},
        }
        for app in _DNS_APPS
    ]
    dns += [{"ipBlock": {"cidr": cidr}} for cidr in _DNS_ADDRESSES]
    # A policy sees the port of the Pod, not that of the Service: Gardener's CoreDNS listens at 8053.
    dns_ports = [{"protocol": protocol, "port": port} for port in (53, 8053) for protocol in ("UDP", "TCP")]
    ssh = [{"protocol": "TCP", "port": _PORT}]
    spec = {
        "podSelector": {"matchLabels": at.labels},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": ssh}],
        "egress": [
            {"to": dns, "ports": dns_ports},
            {"to": [{"podSelector": {"matchLabels": {"app": "machine"}}}], "ports": ssh},
        ],
    }
    labels = at.labels | _MANAGED
    return manifest(NETWORK_POLICIES, at.name, at.namespace, labels=labels, spec=spec)


_MAX_SOURCES = 5000


class Span(NamedTuple):
    """Addresses of one family, from the first to the last."""

    version: int
    first: int
    last: int


def sources(ingress: Sequence[BastionIngress]) -> list[str]:
    """All blocks without their exceptions, in as few prefixes as possible, IPv4 first.

    Never empty: a load balancer without source ranges would admit everybody.
    """
    if not ingress:
        raise Malformed("spec.ingress is empty, so no client could connect: add an ipBlock with a cidr")
    left: list[Span] = []
    for index, entry in enumerate(ingress):
        left += _left(entry.ip_block, f"spec.ingress[{index}].ipBlock")
    found = [str(network) for network in islice(_networks(_joined(left)), _MAX_SOURCES + 1)]
    if len(found) > _MAX_SOURCES:
        raise Malformed(
            f"spec.ingress comes to more than {_MAX_SOURCES} prefixes: give fewer blocks and exceptions"
        )
    return found


def _left(block: IPBlock, where: str) -> list[Span]:
    """The addresses of a block without its exceptions."""
    whole = _network(block.cidr, f"{where}.cidr")
    gaps = []
    for index, text in enumerate(block.except_ or []):
        part, all_ = _span(_network(text, f"{where}.except[{index}]")), _span(whole)
        inside = part.version == all_.version and all_.first <= part.first and part.last <= all_.last
        if part == all_ or not inside:
            raise Malformed(
                f"{where}.except[{index}] is {text!r}, which is no part of {whole}: "
                "correct it, or take it out"
            )
        gaps.append(part)
    left, first = [], int(whole.network_address)
    for gap in _joined(gaps):
        if first < gap.first:
            left.append(Span(whole.version, first, gap.first - 1))
        first = gap.last + 1
    if first <= (last := int(whole.broadcast_address)):
        left.append(Span(whole.version, first, last))
    if not left:
        raise Malformed(f"{where}.except leaves nothing of {whole}: take exceptions out, or the whole block")
    return left


def _network(text: str, where: str) -> Network:
    """A prefix, without its host bits."""
    found = addresses.prefix(text)
    if found is None:
        raise Malformed(f"{where} is {text!r:.60}: give a prefix such as 203.0.113.0/24 or 2001:db8::/64")
    return found


def _span(network: Network) -> Span:
    return Span(network.version, int(network.network_address), int(network.broadcast_address))


def _joined(spans: Iterable[Span]) -> list[Span]:
    """The spans in order; adjacent and overlapping ones are merged."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and joined[-1].version == span.version and span.first <= joined[-1].last + 1:
            joined[-1] = joined[-1]._replace(last=max(joined[-1].last, span.last))
        else:
            joined.append(span)
    return joined


def _networks(spans: Iterable[Span]) -> Iterator[Network]:
    for span in spans:
        if span.version == 4:
            yield from summarize_address_range(IPv4Address(span.first), IPv4Address(span.last))
        else:
            yield from summarize_address_range(IPv6Address(span.first), IPv6Address(span.last))
