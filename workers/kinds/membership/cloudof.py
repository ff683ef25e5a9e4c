"""The cloud of a Shoot, from its Cluster: what its load balancers depend on."""

from __future__ import annotations

import re

from clouds import table
from windowbox.models import addresses
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.objects import Object, mapping
from workers.core.lifecycle.shootfacts import ShootFacts

_REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


def cloud_of(cluster: Object, shoot: ShootFacts) -> CloudFacts | None:
    """The cloud of the Cluster's Shoot; None if its provider is none. Malformed fields count as unset."""
    spec = mapping(mapping(cluster.spec.get("shoot")).get("spec"))
    provider = mapping(spec.get("provider"))
    balancers = table.balancers(str(provider.get("type", "")))
    if balancers is None:
        return None
    region = str(spec.get("region", "")).lower()
    found = (addresses.prefix(one) for one in (*shoot.nodes, *shoot.pods))
    return CloudFacts(
        type=str(provider["type"]),
        region=region if _REGION.fullmatch(region) else "",
        networks=tuple(dict.fromkeys(str(one) for one in found if one is not None)),
        classes=balancers.named(mapping(provider.get("controlPlaneConfig"))),
    )
