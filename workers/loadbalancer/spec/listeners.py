"""The listeners that a Service asks for: addresses, ports, and how clients are treated there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

import orjson

from windowbox.models.loadbalancers import KUBE_PROXY_PORT, Family, Listener, family
from workers.loadbalancer.spec.demands import Demand

_RARE = ("backends", "hairpin")
"""Fields that are in a digest only if they are set, so that others keep their digests."""
_NAMES = tuple(field.name for field in fields(Listener) if field.name not in ("node_port", *_RARE))
"""Fields of a digest. A node port is chosen by the API, and digests of 0.2.0 have none."""
_VALUES = attrgetter(*_NAMES)  # not asdict, which copies each of up to 10,000 prefixes


def listeners(demand: Demand, addresses: Mapping[Family, str]) -> tuple[Listener, ...]:
    """The listeners of `demand` at `addresses`; the edge adds their endpoints.

    A Service that is drained asks for no listeners: Envoy takes no new connections, and keeps the open ones.
    """
    if demand.drained:
        return ()
    found = []
    for of in (of for of in demand.families if of in addresses):
        # If only prefixes of the other family are given, all clients of this family are refused.
        prefixes = demand.allowed
        allowed = None if prefixes is None else tuple(prefix for prefix in prefixes if family(prefix) == of)
        for port in demand.ports:
            tcp = port.protocol == "TCP"
            # The edge decides whether Envoy or itself checks kube-proxy: the digest must not depend on it.
            own_check = port.node_port is not None and demand.health_port != KUBE_PROXY_PORT
            found.append(
                Listener(
                    address=addresses[of],
                    port=port.port,
                    protocol=port.protocol,
                    check=demand.health_port if own_check else None,
                    affinity=demand.affinity,
                    allowed=allowed,
                    proxy_protocol=demand.proxy_protocol if tcp else None,
                    idle_timeout=demand.idle_timeout,
                    max_connections=demand.max_connections if tcp else None,
                    backends=demand.backends,
                    hairpin=() if of in demand.hairpin and tcp else None,
                )
            )
    return tuple(found)


def digest(uid: str, listeners: Iterable[Listener]) -> str:
    """A hash of what a Service asks for: it changes with the Service alone, not with its endpoints."""
    encoded = orjson.dumps([uid, [_values(listener) for listener in listeners]])
    return hashlib.sha256(encoded).hexdigest()[:16]


def _values(listener: Listener) -> dict[str, Any]:
    found = dict(zip(_NAMES, _VALUES(listener), strict=True))
    rare = {name: getattr(listener, name) for name in _RARE}
    return found | {name: value for name, value in rare.items() if value is not None}
