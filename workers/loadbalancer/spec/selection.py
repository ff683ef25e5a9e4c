"""Selects the Services that windowbox serves. Rules LB-1-* of docs/contract-coverage.md."""

from __future__ import annotations

from collections.abc import Collection

from windowbox.models.objects import Object
from workers.loadbalancer.spec import fields

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
"""The finalizer of Kubernetes' own service controller, so that its Services can be adopted."""


def is_ours(service: Object, classes: Collection[str]) -> bool:
    """Whether it asks for a load balancer of ours: with a class of `classes`, or without a class."""
    if not _is_load_balancer(service):
        return False
    given = service.spec.get("loadBalancerClass")
    return given is None or (isinstance(given, str) and given in classes)


def needs_cleanup(service: Object) -> bool:
    """Whether its load balancer and the finalizer are to be removed.

    The class does not matter: the API server removes it when the type changes, and another controller may
    have added the finalizer.
    """
    return has_finalizer(service) and (service.deleting or not _is_load_balancer(service))


def has_finalizer(service: Object) -> bool:
    """Whether the finalizer is on."""
    return FINALIZER in fields.items(service.metadata.get("finalizers"))


def held_by_others(service: Object) -> bool:
    """Whether finalizers of others keep it when it is deleted."""
    return any(one != FINALIZER for one in fields.items(service.metadata.get("finalizers")))


def _is_load_balancer(service: Object) -> bool:
    return service.spec.get("type") == "LoadBalancer"
