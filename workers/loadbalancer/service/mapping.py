"""Mapping: from a changed Service to the keys of the Services to reconcile."""

from __future__ import annotations

from collections.abc import Callable, Collection

from bus import subjects
from bus.messages import Announcement
from bus.workqueue.routing import PreviousVersion
from windowbox.models.objects import Object
from windowbox.models.refs import SERVICES, ObjectRef, is_provider_cluster
from workers.loadbalancer.service import predicates
from workers.loadbalancer.spec import selection


class ServiceMapping:
    """Maps changes of Services to their keys. Changes of nodes reach Services by the edge's states."""

    kinds: tuple[str, ...] = (SERVICES.id,)
    owned: tuple[str, ...] = ()

    def __init__(self, classes: Collection[str], has_address: Callable[[ObjectRef], bool]) -> None:
        self._classes = classes
        self._has_address = has_address

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        key = subjects.without("object", change.stored.subject)
        ref = subjects.ref(key)
        if is_provider_cluster(ref.cluster):
            return []
        if change.omitted:
            return [key]
        if change.gone:
            # A Service that is no load balancer any more may have an address in its grace period.
            old = None if self._has_address(ref) else await before.object()
            return [key] if old is None or self._ours(old) else []
        new = change.object()
        if change.operation != "MODIFIED":
            return [key] if self._ours(new) else []
        return [key] if predicates.triggers(await before.object(), new, self._classes) else []

    def unfinished(self, object: Object) -> bool:
        if selection.needs_cleanup(object):
            return True
        balancer = object.status.get("loadBalancer")
        served = isinstance(balancer, dict) and balancer.get("ingress")
        return selection.is_ours(object, self._classes) and not served

    def _ours(self, service: Object) -> bool:
        return selection.is_ours(service, self._classes) or selection.needs_cleanup(service)
