"""Predicates: which changes of a Service trigger a run. Rules LB-4-* (docs/contract-coverage.md)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from windowbox.models.objects import Json, Object, mapping
from workers.loadbalancer.service.statuses import CONDITIONS
from workers.loadbalancer.spec import fields
from workers.loadbalancer.spec.selection import has_finalizer, is_ours, needs_cleanup

_COMPARED = (
    "loadBalancerSourceRanges",  # order matters, and no list is not an empty one
    "sessionAffinity",
    "sessionAffinityConfig",
    "loadBalancerIP",
    "externalTrafficPolicy",
    "healthCheckNodePort",
)
_OF_A_CONDITION = ("type", "status", "reason", "message")
_OF_A_PORT = ("name", "protocol", "port", "nodePort", "targetPort", "appProtocol")


def triggers(old: Object | None, new: Object, classes: Collection[str]) -> bool:
    """Whether the change from `old` to `new` starts a run; `old` is None if it is not known.

    One run too many does no harm: it finds nothing to do.
    """
    if needs_cleanup(new):
        return True
    wanted = is_ours(new, classes)
    if old is None:
        return wanted
    before = is_ours(old, classes)
    if not (wanted and before):
        return wanted != before
    return old.uid != new.uid or _request_differs(old, new) or _output_lost(old, new)


def _request_differs(old: Object, new: Object) -> bool:
    return _request(old.spec) != _request(new.spec) or old.annotations != new.annotations


def _request(spec: Json) -> list[Any]:
    """The fields of a spec that its load balancer depends on."""
    return [
        *(spec.get(field) for field in _COMPARED),
        [_port(port) for port in fields.items(spec.get("ports"))],
        fields.items(spec.get("externalIPs")),
        len(fields.items(spec.get("ipFamilies"))),  # the API lets only their number change
    ]


def _port(port: object) -> Any:
    return [mapping(port).get(field) for field in _OF_A_PORT] if mapping(port) else port


def _output_lost(old: Object, new: Object) -> bool:
    """Whether what we had written was removed or changed.

    Our own writes count, too: the run then finds nothing to do.
    """
    return (
        _lost(_ingress(old), _ingress(new))
        or _lost(_conditions(old), _conditions(new))
        or (has_finalizer(old) and not has_finalizer(new))
    )


def _lost(had: list[Any], has: list[Any]) -> bool:
    return bool(had) and had != has


def _conditions(service: Object) -> list[Any]:
    """What our conditions say. Their order and times do not matter."""
    found = fields.mappings(service.status.get("conditions"))
    ours = [one for one in found if one.get("type") in CONDITIONS]
    return sorted([repr(one.get(field)) for field in _OF_A_CONDITION] for one in ours)


def _ingress(service: Object) -> list[Any]:
    return fields.items(mapping(service.status.get("loadBalancer")).get("ingress"))
