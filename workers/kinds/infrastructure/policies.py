"""The NetworkPolicies around machines: only listed peers are allowed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windowbox.models.refs import NETWORK_POLICIES
from windowbox.settings.kindsettings import InfrastructureSettings, Network
from workers.core.owned.manifests import Manifest, manifest

LABELS = {"app.kubernetes.io/managed-by": "provider-local"}
ALLOW, DENY, BALANCERS = (
    "provider-local-allow-machine-pods",
    "provider-local-deny-all",
    "allow-load-balancers",
)

_BOTH = ["Ingress", "Egress"]
_NODE_PORTS = {"port": 30000, "endPort": 32767}
_HEALTH = {"protocol": "TCP", "port": 10256}
"""Where kube-proxy answers for the node. Services' own health ports are node ports."""
_INTERNET = (
    ("0.0.0.0/0", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")),
    ("::/0", ("fe80::/10", "fc00::/7")),
)


def policies(namespace: str, settings: InfrastructureSettings, *, self_hosted: bool) -> list[Manifest]:
    """All policies of the namespace, first the one without which its machines would be cut off."""
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
    """What machines have to accept from load balancers at `sources`: the node ports of both protocols, and
    questions about their health. The policy for machines speaks of TCP alone."""
    ports = [{"protocol": "TCP", **_NODE_PORTS}, {"protocol": "UDP", **_NODE_PORTS}, _HEALTH]
    blocks = _blocks(sources)
    # A rule without peers would let everybody in.
    ingress = [{"from": blocks, "ports": ports}] if blocks else []
    spec = {**_pods("machine"), "policyTypes": ["Ingress"], "ingress": ingress}
    return _policy(BALANCERS, namespace, spec)


def _policy(name: str, namespace: str, spec: dict[str, Any]) -> Manifest:
    return manifest(NETWORK_POLICIES, name, namespace, labels=LABELS, spec=spec)


def _pods(app: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {"app": app}}}


def _blocks(networks: Iterable[Network]) -> list[dict[str, Any]]:
    return [{"ipBlock": {"cidr": str(network)}} for network in networks]


def _port(number: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"protocol": protocol, "port": number}
