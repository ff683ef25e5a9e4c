"""Addresses in use, taken over from the status of Services when the bus has forgotten whose they are."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from bus.registry import Registry
from windowbox.clients.clusters import Clusters
from windowbox.errors import WindowboxError
from windowbox.models.lbsettings import LoadBalancerSettings
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from workers.loadbalancer import qualifying, statuses
from workers.loadbalancer.book import Book, Claim
from workers.loadbalancer.demands import demand

logger = logging.getLogger(__name__)


async def adopt(
    book: Book, clusters: Clusters, registry: Registry, settings: LoadBalancerSettings
) -> tuple[ObjectRef, ...]:
    """Write into the book what the clusters say, and that it may be relied on. Returns whom to look at."""
    await registry.complete.wait()
    claims = []
    for cluster in (RUNTIME, *registry.members):
        try:
            claims += [claim async for claim in _claims(cluster, clusters, settings)]
        except WindowboxError as error:
            logger.warning("addresses of cluster %s cannot be taken over: %s", cluster, error)
    return (await book.adopt_all(claims)).wake


async def _claims(cluster: str, clusters: Clusters, settings: LoadBalancerSettings) -> AsyncIterator[Claim]:
    kube, more = await clusters.get(cluster), ""
    while True:
        page = await kube.page(SERVICES, more=more)
        for raw in page.items:
            if claim := _claim(cluster, Object(raw), settings):
                yield claim
        more = page.more
        if not more:
            return


def _claim(cluster: str, service: Object, settings: LoadBalancerSettings) -> Claim | None:
    addresses = statuses.addresses(service)
    if not addresses or not qualifying.wants(service, settings.classes):
        return None
    asked = demand(service, direct=False)
    return Claim(
        ObjectRef(cluster, SERVICES.id, service.namespace, service.name),
        service.uid,
        addresses,
        tuple(port.place for port in asked.ports),
        asked.share,
    )
