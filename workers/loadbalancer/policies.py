"""The NetworkPolicy that lets load balancers through to nodes that run in Pods (contract, chapter 10)."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network
from typing import Any

NAME = "allow-load-balancers"

_NODE_PORTS = {"port": 30000, "endPort": 32767}
_HEALTH = 10256
"""Where kube-proxy answers for the node. Services' own health ports are node ports."""


def machine_policy(namespace: str, sources: Iterable[str]) -> dict[str, Any]:
    """What the machine Pods of `namespace` have to accept from an edge whose addresses, or prefixes, are
    `sources`: the node ports of both protocols, and questions about their health."""
    blocks = sorted({str(ip_network(source)) for source in sources})
    ports = [
        {"protocol": "TCP", **_NODE_PORTS},
        {"protocol": "UDP", **_NODE_PORTS},
        {"protocol": "TCP", "port": _HEALTH},
    ]
    # A rule without peers would let everybody in.
    ingress = [{"from": [{"ipBlock": {"cidr": block}} for block in blocks], "ports": ports}] if blocks else []
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": {"app": "machine"}},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }
