"""Which Services are ours. Rules LB-1-* of docs/contract-coverage.md."""

from __future__ import annotations

from collections.abc import Collection

from windowbox.models.objects import Object
from workers.loadbalancer.spec import fields

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
"""The one that Kubernetes' own controller uses: whoever takes over from it, takes over its Services."""


def wants(service: Object, classes: Collection[str]) -> bool:
    """Whether it asks for a load balancer of ours; `classes` are those that are ours beside none at all."""
    if not _is_load_balancer(service):
        return False
    given = service.spec.get("loadBalancerClass")
    return given is None or (isinstance(given, str) and given in classes)


def needs_cleanup(service: Object) -> bool:
    """Whether what it had is to be removed, and the finalizer taken off.

    No class is asked for here: the API server wipes it when the type changes, and the finalizer has to come
    off whoever put it on.
    """
    return held(service) and (service.deleting or not _is_load_balancer(service))


def held(service: Object) -> bool:
    """Whether the finalizer is on."""
    return FINALIZER in fields.items(service.metadata.get("finalizers"))


def _is_load_balancer(service: Object) -> bool:
    return service.spec.get("type") == "LoadBalancer"
