"""Load balancers of GCP: passthrough Network Load Balancers."""

from __future__ import annotations

from clouds.frame.balancers import Annotation, Balancer, Balancers, Change, choice

_TYPES: dict[str, Change] = {"Internal": {"internal": True}, "External": {}}
_EFFECT = "`Internal`: clients outside the networks of nodes and Pods are refused"

BALANCERS = Balancers(
    usual=Balancer(keeps_source=True),
    says="a public address of each family of the Service",
    annotations=(
        Annotation("cloud.google.com/load-balancer-type", choice(_TYPES, ignore_case=True), _EFFECT),
        Annotation("networking.gke.io/load-balancer-type", choice(_TYPES, ignore_case=True), _EFFECT),
    ),
    ignored=(
        "cloud.google.com/network-tier",
        "networking.gke.io/internal-load-balancer-allow-global-access",
        "networking.gke.io/internal-load-balancer-subnet",
    ),
)
