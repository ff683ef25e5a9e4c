"""Adoption of addresses in use: the bus may have forgotten whose they are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection

from bus import consumers, streams, subjects
from bus.connection import Bus
from bus.messages import OPERATION, Announcement
from bus.registry import Registry
from windowbox.clients.clusters import Clusters
from windowbox.errors import TransientError, WindowboxError
from windowbox.models.lbsettings import LoadBalancerSettings
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.ipam.adopting import Claim
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service import statuses
from workers.loadbalancer.spec import fields, selection
from workers.loadbalancer.spec.demands import demand_in

logger = logging.getLogger(__name__)

_EDGE_PATIENCE = 15.0
"""Seconds that new addresses wait for an edge, where Services show addresses that the bus does not know."""
_PATIENCE = 60.0
"""Seconds that the allocation of new addresses waits for a cluster that cannot be read."""


def claim(
    cluster: str, service: Object, settings: LoadBalancerSettings, served: Collection[str] = ()
) -> Claim | None:
    """What a Service has, by its status; None if that is nothing of ours. `served` are those addresses that
    an edge names, for this very Service."""
    shown = [address for address in statuses.addresses(service) if address not in served]
    if not (served or shown) or not selection.is_ours(service, settings.classes):
        return None
    demand = demand_in(cluster, service, settings)
    return Claim(
        ObjectRef(cluster, SERVICES.id, service.namespace, service.name),
        service.uid,
        tuple(served),
        demand.places,
        demand.share,
        tuple(shown),
        demand.families,
        fields.text(service.metadata.get("creationTimestamp")),
    )


class Adoption:
    """Restores allocations from what the clusters show."""

    def __init__(
        self,
        bus: Bus,
        store: AddressStore,
        clusters: Clusters,
        registry: Registry,
        states: States,
        settings: LoadBalancerSettings,
    ) -> None:
        self._bus = bus
        self._store = store
        self._clusters = clusters
        self._registry = registry
        self._states = states
        self._settings = settings
        self._since: float | None = None

    async def adopt(self) -> tuple[ObjectRef, ...]:
        """Adopt all addresses in use, and mark the store as complete. Returns the Services to requeue."""
        self._since = self._since or time.monotonic()
        await self._registry.complete.wait()
        services = [
            (cluster, service)
            for cluster in (RUNTIME, *self._registry.served())
            for service in await self._services(cluster)
        ]
        if self._store.needs_adoption() and any(statuses.addresses(service) for _, service in services):
            await self._testified()
        found_of = (claim(c, one, self._settings, self._served(c, one)) for c, one in services)
        claims = [one for one in found_of if one]
        found = await self._store.adopt_all(claims)
        self._since = None
        return found.wake

    async def _testified(self) -> None:
        """Wait until an edge has said what it serves: what Services show, their owners may have written."""
        answered = asyncio.Event()
        with contextlib.ExitStack() as stack:
            stack.callback(self._states.bucket.on_change(lambda *_: answered.set()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EDGE_PATIENCE):
                    while not self._states.testified():
                        answered.clear()
                        await answered.wait()
                    return
        logger.warning("no edge reports which addresses it serves: the status of Services is trusted")

    def _served(self, cluster: str, service: Object) -> tuple[str, ...]:
        state = self._states.of(ObjectRef(cluster, SERVICES.id, service.namespace, service.name))
        return state.addresses if state and state.uid == service.uid else ()

    async def _services(self, cluster: str) -> list[Object]:
        try:
            return [service async for service in self._listed(cluster)]
        except WindowboxError as error:
            return await self._remembered(cluster, error)

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
