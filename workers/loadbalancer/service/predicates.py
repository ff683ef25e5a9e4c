"""Predicates: which changes of a Service trigger a run. Rules LB-4-* (docs/contract-coverage.md)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from windowbox.models.objects import Json, Object
from workers.loadbalancer.spec import fields
from workers.loadbalancer.spec.selection import held, needs_cleanup, wants

_COMPARED = (
    "loadBalancerSourceRanges",  # order matters, and no list is not an empty one
    "sessionAffinity",
    "sessionAffinityConfig",
    "loadBalancerIP",
    "externalTrafficPolicy",
    "healthCheckNodePort",
)
_OF_A_PORT = ("name", "protocol", "port", "nodePort", "targetPort", "appProtocol")


def counts(old: Object | None, new: Object, classes: Collection[str]) -> bool:
    """Whether the change from `old` to `new` starts a run; `old` is None if it is not known.

    One run too many does no harm: it finds nothing to do.
    """
    if needs_cleanup(new):
        return True
    wanted = wants(new, classes)
    if old is None:
        return wanted
    before = wants(old, classes)
    if not (wanted and before):
        return wanted != before
    return old.uid != new.uid or _asks_otherwise(old, new) or _lost(old, new)


def _asks_otherwise(old: Object, new: Object) -> bool:
    return _asked(old.spec) != _asked(new.spec) or old.annotations != new.annotations


def _asked(spec: Json) -> list[Any]:
    """All of a spec that matters to its load balancer."""
    return [
        *(spec.get(field) for field in _COMPARED),
        [_port(port) for port in fields.items(spec.get("ports"))],
        fields.items(spec.get("externalIPs")),
        len(fields.items(spec.get("ipFamilies"))),  # the API lets only their number change
    ]


def _port(port: object) -> Any:
    return [fields.mapping(port).get(field) for field in _OF_A_PORT] if fields.mapping(port) else port


def _lost(old: Object, new: Object) -> bool:
    """Whether somebody took away, or changed, what we had written.

    That we wrote it ourselves is not excluded: the run then finds all as it should be, and writes nothing.
    """
    had = _ingress(old)
    return (bool(had) and had != _ingress(new)) or (held(old) and not held(new))


def _ingress(service: Object) -> list[Any]:
    return fields.items(fields.mapping(service.status.get("loadBalancer")).get("ingress"))
