"""Adoption: restores allocations that the bus has lost from the Services and from the edge's reports."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from bus import intents, streams, subjects
from bus.clusters.clusters import Clusters
from bus.clusters.registry import Registry
from bus.messages import OPERATION, Announcement
from bus.transport import consumers
from bus.transport.connection import Bus
from windowbox.errors import TransientError, WindowboxError
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings, matches
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.ipam import addressclaims
from workers.loadbalancer.ipam.addressclaims import Claim
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.service import servicestatus
from workers.loadbalancer.spec import cloudterms, selection
from workers.loadbalancer.spec.demands import demand_in

logger = logging.getLogger(__name__)

_EDGE_PATIENCE = 15.0
"""Seconds that new allocations wait for an edge, if Services show addresses that the bus does not know."""
_CONTEST_PATIENCE = 120.0
"""The same if Services of several clusters show one address: only an edge knows whose it is."""
_PATIENCE = 60.0
"""Seconds that the allocation of new addresses waits for a cluster that cannot be read."""
_CLUSTER_SECONDS = 20.0
"""For the list of Services of one cluster. The next attempt asks only the clusters that are still missing."""
_AT_ONCE = 64
"""Clusters that are read at once: slow ones must not delay the others, and each may hold a page in memory."""
_MOST_CLAIMS, _MOST_PORTS = 10_000, 50_000
"""Of one cluster. Its other Services keep their addresses only if no other Service gets them first."""
_MOST_SHOWN = 8
"""Addresses of one Service. It can have one of each family."""


def claim(
    cluster: str, service: Object, settings: LoadBalancerSettings, cloud: CloudFacts | None = None
) -> Claim:
    """The addresses of a Service by its own status."""
    demand = demand_in(cluster, service, settings, cloud)
    return Claim(
        ObjectRef(cluster, SERVICES.id, service.namespace, service.name),
        service.uid,
        (),
        demand.places if demand.share else (),
        demand.share,
        servicestatus.addresses(service)[:_MOST_SHOWN],
        demand.families,
        range=demand.range,
    )


def confirmed(claim: Claim, served: Sequence[str]) -> Claim:
    """The claim, with the addresses that an edge names for this very Service."""
    others = tuple(address for address in claim.shown if address not in served)
    return claim._replace(addresses=tuple(served), shown=others)


@dataclass(eq=False, repr=False)
class Adoption:
    """Restores allocations from what the clusters show.

    Tenants write these Services, and run some of the API servers. So of each Service only a claim is kept,
    every cluster has bounds of its own, and whatever one cluster answers or raises harms that cluster alone.
    """

    _bus: Bus
    _store: AddressStore
    _clusters: Clusters
    _registry: Registry
    _states: States
    _settings: LoadBalancerSettings
    _since: float | None = field(default=None, init=False)
    _read: dict[str, list[Claim]] = field(default_factory=dict, init=False)
    """The claims of the clusters that have been read since then."""

    async def adopt(self) -> tuple[ObjectRef, ...]:
        """Adopt all addresses in use, and mark the store as complete. Returns the Services to requeue."""
        self._since = self._since or time.monotonic()
        await self._registry.complete.wait()
        every = (RUNTIME, *self._registry.served())
        clusters = [one for one in every if matches(one, self._settings.clusters)]
        since, room = self._since, asyncio.Semaphore(_AT_ONCE)

        async def read(cluster: str) -> None:
            async with room:
                self._read[cluster] = await self._claims(cluster, since)

        missing = [cluster for cluster in clusters if cluster not in self._read]
        # Clusters that fail wait for the next attempt, and do not end the others.
        for error in await asyncio.gather(*map(read, missing), return_exceptions=True):
            if error is not None:
                raise error
        found, self._read = self._read, {}
        all_claims = [one for cluster in clusters for one in found[cluster]]
        adopted = await addressclaims.adopt_all(self._store, await self._proven(all_claims))
        self._since = None
        return adopted.wake

    async def _proven(self, claims: list[Claim]) -> list[Claim]:
        """The claims, with what edges say of them, and our reports if that is not enough."""
        incomplete, index = self._store.needs_adoption(), self._store.index
        if incomplete and any(one.shown for one in claims):
            several = addressclaims.contested(claims, index)
            await self._edge_has_testified(_CONTEST_PATIENCE if several else _EDGE_PATIENCE)

        def served(claim: Claim) -> tuple[str, ...]:
            state = self._states.of(claim.ref)
            return state.addresses if state and state.uid == claim.uid else ()

        found = [confirmed(one, served(one)) for one in claims]
        several = addressclaims.contested(found, index) if incomplete else set()
        return [await self._with_report(one) if several & {*one.shown} else one for one in found]

    async def _with_report(self, claim: Claim) -> Claim:
        report = (await intents.last(self._bus, subjects.key(claim.ref))).intent
        if report is None or report.uid != claim.uid:
            return claim
        said = servicestatus.addresses(Object({"status": report.patch}))
        return claim._replace(reported=tuple(address for address in claim.shown if address in said))

    async def _claims(self, cluster: str, since: float) -> list[Claim]:
        """The claims of one cluster; TransientError if they are not known yet."""
        try:
            try:
                async with asyncio.timeout(_CLUSTER_SECONDS):
                    kube = await self._clusters.get(cluster)
                    listed = kube.objects(SERVICES, fields="spec.type=LoadBalancer")
                    return await self._collected(cluster, listed)
            except (TimeoutError, WindowboxError) as error:
                known = await self._bus.last(streams.OBJECTS, subjects.listed(cluster, SERVICES.id))
                if known is None or known.headers.get(OPERATION) == "DELETED":
                    why = str(error) or f"no complete answer within {_CLUSTER_SECONDS:.0f} s"
                    if time.monotonic() - since < _PATIENCE:
                        raise TransientError(
                            f"addresses of cluster {cluster} are not known: {why}"
                        ) from error
                    logger.warning(
                        "addresses of cluster %s are not known, others may get them: %s", cluster, why
                    )
                # The bus remembers the Services of a cluster that does not answer.
                filters = [subjects.seen_kind(cluster, SERVICES.id)]
                stored = consumers.snapshot(self._bus, streams.OBJECTS, filters)
                seen = (Announcement(one) async for one in stored)
                there = (one.object() async for one in seen if not (one.gone or one.omitted))
                return await self._collected(cluster, there)
        except WindowboxError:
            raise
        except Exception:
            # An object of this cluster has triggered a bug. It must not end this process, and then the next
            # holder of the lease.
            logger.exception("addresses of cluster %s are not known, others may get them", cluster)
            return []

    async def _collected(self, cluster: str, services: AsyncIterator[Object]) -> list[Claim]:
        found: list[Claim] = []
        ports, cloud = 0, self._registry.cloud(cluster)
        async for service in services:
            if not selection.is_ours(service, (*self._settings.classes, *cloudterms.classes(cloud))):
                continue
            found.append(claim(cluster, service, self._settings, cloud))
            ports += len(found[-1].ports)
            if len(found) >= _MOST_CLAIMS or ports >= _MOST_PORTS:
                logger.warning(
                    "cluster %s has more load balancers than %d, or more ports than %d: others may get the "
                    "addresses of those beyond",
                    *(cluster, _MOST_CLAIMS, _MOST_PORTS),
                )
                break
        return found

    async def _edge_has_testified(self, patience: float) -> None:
        """Wait until an edge has published its addresses: a Service's owner may write any into its status."""
        answered = asyncio.Event()
        with contextlib.ExitStack() as stack:
            stack.callback(self._states.bucket.on_change(lambda *_: answered.set()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    while not self._states.testified():
                        answered.clear()
                        await answered.wait()
                    return
        logger.warning("no edge reports which addresses it serves: the status of Services is trusted")
