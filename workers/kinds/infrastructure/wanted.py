"""What an Infrastructure consists of, and what it reports."""

from __future__ import annotations

import re
from typing import Any

from windowbox.errors import Malformed
from windowbox.models.objects import Object
from windowbox.models.refs import IP_POOLS, NAMESPACES
from workers.core.lifecycle.kinds import Status
from workers.core.owned import ownerindex
from workers.core.owned.manifests import Manifest, manifest
from workers.kinds.infrastructure.networks import Networks

ROLE, INFRA = "gardener.cloud/role", "infra"


def namespace(name: str) -> Manifest:
    return manifest(NAMESPACES, name, labels={ROLE: INFRA})


def made_before(infrastructure: Object) -> bool:
    """Whether it has succeeded once."""
    return bool(infrastructure.status.get("networking"))


def is_ours(namespace: Object, infrastructure: Object) -> bool:
    """Whether the namespace of the Infrastructure was made for it, be it by another seed or program.

    Where it has succeeded once, it was; then somebody has taken our label off since.
    """
    return namespace.labels.get(ROLE) == INFRA or made_before(infrastructure)


def check_ownership(namespace: Object, infrastructure: Object) -> None:
    if not is_ours(namespace, infrastructure):
        raise Malformed(
            f"namespace {namespace.name} of the provider cluster belongs to somebody else: it has no label "
            f"{ROLE}={INFRA}; delete it, or give it this label to have it taken over"
        )


def technical_id(pool_name: str) -> str:
    """The Shoot whose pool has this name; nothing if it is nobody's."""
    match = re.fullmatch(r"shoot-machine-pods-(.+)-ipv[46]", pool_name)
    return match[1] if match else ""


def pools(technical_id: str, networks: Networks, home: str, home_uid: str) -> list[Manifest]:
    """Where machines of each family get their addresses from; gone when the namespace `home` is."""
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": home, "uid": home_uid}
    return [
        manifest(
            IP_POOLS,
            ownerindex.machine_ip_pool(technical_id, family),
            owners=[owner],
            spec={
                "cidr": str(network),
                "ipipMode": "Always" if network.version == 4 else "Never",
                "natOutgoing": True,
                "nodeSelector": "!all()",  # never chosen by Calico itself
            },
        )
        for family, network in networks.machines.items()
    ]


def status(networks: Networks) -> Status:
    """A merge patch; what the Shoot has not is taken off."""
    named = {"nodes": networks.nodes, "pods": networks.pods, "services": networks.services}
    networking: dict[str, Any] = {name: [str(n) for n in found] or None for name, found in named.items()}
    return {"networking": networking, "egressCIDRs": [str(n) for n in networks.nodes]}
