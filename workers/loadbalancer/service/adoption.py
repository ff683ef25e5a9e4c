"""Addresses in use, taken over from the status of Services: the bus may have forgotten whose they are."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator

from bus import consumers, streams, subjects
from bus.connection import Bus
from bus.messages import OPERATION, Announcement
from bus.registry import Registry
from windowbox.clients.clusters import Clusters
from windowbox.errors import TransientError, WindowboxError
from windowbox.models.lbsettings import LoadBalancerSettings
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from workers.loadbalancer.ipam.store import AddressStore, Claim
from workers.loadbalancer.service import statuses
from workers.loadbalancer.spec import selection
from workers.loadbalancer.spec.demands import demand_in

logger = logging.getLogger(__name__)

_PATIENCE = 60.0
"""Seconds that new addresses wait for a cluster that nobody can tell anything of."""


def claim(cluster: str, service: Object, settings: LoadBalancerSettings) -> Claim | None:
    """What a Service has, by its status; None if that is nothing of ours."""
    addresses = statuses.addresses(service)
    if not addresses or not selection.wants(service, settings.classes):
        return None
    asked = demand_in(cluster, service, settings)
    return Claim(
        ObjectRef(cluster, SERVICES.id, service.namespace, service.name),
        service.uid,
        addresses,
        asked.places,
        asked.share,
    )


class Adoption:
    """Brings the address book up to what the clusters say."""

    def __init__(
        self,
        bus: Bus,
        store: AddressStore,
        clusters: Clusters,
        registry: Registry,
        settings: LoadBalancerSettings,
    ) -> None:
        self._bus = bus
        self._store = store
        self._clusters = clusters
        self._registry = registry
        self._settings = settings
        self._since: float | None = None

    async def adopt(self) -> tuple[ObjectRef, ...]:
        """Write down who has what, and that the book may be relied on. Returns whom to look at."""
        self._since = self._since or time.monotonic()
        await self._registry.complete.wait()
        claims: list[Claim] = []
        for cluster in (RUNTIME, *self._registry.served()):
            claims += await self._claims(cluster)
        found = await self._store.adopt_all(claims)
        self._since = None
        return found.wake

    async def _claims(self, cluster: str) -> list[Claim]:
        try:
            services = [service async for service in self._listed(cluster)]
        except WindowboxError as error:
            services = await self._remembered(cluster, error)
        found = (claim(cluster, service, self._settings) for service in services)
        return [one for one in found if one]

    async def _listed(self, cluster: str) -> AsyncIterator[Object]:
        kube, more = await self._clusters.get(cluster), ""
        while True:
            page = await kube.page(SERVICES, more=more)
            for raw in page.items:
                yield Object(raw)
            more = page.more
            if not more:
                return

    async def _remembered(self, cluster: str, error: WindowboxError) -> list[Object]:
        """What the bus remembers of a cluster that does not answer."""
        assert self._since is not None
        listed = await self._bus.last(streams.OBJECTS, subjects.listed(cluster, SERVICES.id))
        if listed is None or listed.headers.get(OPERATION) == "DELETED":
            if time.monotonic() - self._since < _PATIENCE:
                raise TransientError(f"addresses of cluster {cluster} are not known: {error}") from error
            logger.warning("addresses of cluster %s are not known, others may get them: %s", cluster, error)
        filters = [subjects.seen_kind(cluster, SERVICES.id)]
        seen = [Announcement(s) async for s in consumers.snapshot(self._bus, streams.OBJECTS, filters)]
        return [one.object() for one in seen if not one.gone and not one.omitted]
