"""The cloud of a Shoot, from its Cluster: what its load balancers depend on."""

from __future__ import annotations

import re
from collections.abc import Collection

from clouds import table
from windowbox.models import addresses
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.objects import Object, mapping
from workers.core.lifecycle.shootfacts import ShootFacts

_REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


def cloud_of(cluster: Object, shoot: ShootFacts, types: Collection[str]) -> CloudFacts | None:
    """The cloud of the Cluster's Shoot, if it is of these types. Malformed fields count as unset."""
    spec = mapping(mapping(cluster.spec.get("shoot")).get("spec"))
    provider = mapping(spec.get("provider"))
    type_ = str(provider.get("type", ""))
    balancers = table.balancers(type_) if type_ in types else None
    if balancers is None:
        return None
    region = str(spec.get("region", "")).lower()
    found = (addresses.prefix(one) for one in (*shoot.nodes, *shoot.pods))
    return CloudFacts(
        type=type_,
        region=region if _REGION.fullmatch(region) else "",
        networks=tuple(dict.fromkeys(str(one) for one in found if one is not None)),
        classes=balancers.named(mapping(provider.get("controlPlaneConfig"))),
    )
