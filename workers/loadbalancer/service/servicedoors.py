"""Outside calls of a Service's run. Their answers are plain JSON: the recorder notes them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from bus import subjects
from bus.clusters.clusters import Clusters
from bus.messages import Reason, Wish
from bus.workqueue.queue import Queue
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import PermanentError
from windowbox.models.recordsets import RecordKey, RecordSet, RecordType
from windowbox.models.refs import SERVICES, ObjectRef
from workers.loadbalancer.edgestate import States
from workers.loadbalancer.ipam import allocator
from workers.loadbalancer.ipam.results import AddressRequest, Allocated, Queued, Rejected, Released
from workers.loadbalancer.ipam.store import AddressStore

logger = logging.getLogger(__name__)

_TTL = 60
"""Seconds for which resolvers may keep a host name, as those of AWS."""


class ServiceDoors:
    """Acts for the runs of Services. Services that waited for a released address are requeued."""

    def __init__(
        self, store: AddressStore, queue: Queue, clusters: Clusters, states: States, nameserver: Nameserver
    ) -> None:
        self._store = store
        self._queue = queue
        self._clusters = clusters
        self._states = states
        self._nameserver = nameserver

    # Addresses.

    async def allocate(self, request: AddressRequest) -> dict[str, Any]:
        """The addresses of the Service. It keeps what it has, if that still fits the request."""
        answer = await allocator.allocate(self._store, request)
        await self._wake(answer.wake)
        match answer:
            case Allocated():
                notice = {"notice": answer.notice} if answer.notice else {}
                return {"addresses": dict(answer.addresses), **notice}
            case Queued() | Rejected():
                return {"addresses": {}, "reason": answer.reason, "note": answer.note}
            case _:
                assert_never(answer)

    async def version(self, ref: ObjectRef, uid: str) -> str:
        """The resource version since which the Service has our finalizer; empty if it holds no address."""
        return next((h.version for _, h in self._store.held(ref) if h.uid == uid and not h.until), "")

    async def leftovers(self, ref: ObjectRef, uid: str) -> list[str] | None:
        """The addresses that the Service still holds; None if it neither holds nor waits for one."""
        has = [address for address, h in self._store.held(ref) if h.uid == uid and not h.until]
        waiter = self._store.waiter(ref)
        return has if has or (waiter and waiter.uid == uid) else None

    async def step_back(self, ref: ObjectRef) -> None:
        """Leave the queue for addresses."""
        await self._released(await self._store.step_back(ref))

    async def release(self, ref: ObjectRef) -> list[str]:
        """Release all that Services of this name hold."""
        return await self._released(await self._store.release(ref))

    async def release_others(self, ref: ObjectRef, uid: str) -> list[str]:
        """Release what former Services of this name have left."""
        if all(holder.uid == uid for _, holder in self._store.held(ref)):
            return []
        return await self._released(await self._store.release(ref, keep_uid=uid))

    async def keep(self, ref: ObjectRef, uid: str, until: float) -> None:
        """Keep the addresses of a Service that is no load balancer for now."""
        await self._released(await self._store.keep(ref, uid, until))

    async def release_expired(self, ref: ObjectRef, now: float) -> list[str]:
        """Release addresses whose grace period is over."""
        return await self._released(await self._store.release_expired(ref, now))

    async def _released(self, released: Released) -> list[str]:
        await self._wake(released.wake)
        return list(released.addresses)

    async def _wake(self, waiting: Iterable[ObjectRef]) -> None:
        for ref in waiting:
            await self._queue.wish(subjects.key(ref), Wish(reason=Reason.ADDRESS))

    # Host names.

    async def publish(self, ref: ObjectRef, uid: str, name: str, records: Mapping[RecordType, str]) -> str:
        """Let the name lead to these addresses. Returns its zone; empty if no zone of ours contains it."""
        zone = self._nameserver.zone_around(name)
        if zone:
            owner = "/".join(("service", ref.cluster, ref.namespace, ref.name, uid))
            for type_, address in records.items():
                wanted = RecordSet(RecordKey(name, type_), _TTL, (address,))
                await self._nameserver.replace(zone, wanted, resource=owner)
        return zone

    async def unpublish(self, zone: str, name: str, types: Iterable[RecordType]) -> None:
        """Remove records of a name. If the name server refuses for good, they stay."""
        try:
            for type_ in types:
                await self._nameserver.delete(zone, RecordKey(name, type_))
        except PermanentError as error:
            logger.warning("the name %s of a load balancer stays in zone %s: %s", name, zone, error)

    # The edge and the cluster.

    async def edge_state(self, ref: ObjectRef) -> dict[str, Any] | None:
        """The state that the edge reports of this Service; None if the edge does not serve it."""
        state = await self._states.get(ref)
        return state.model_dump(mode="json") if state else None

    async def has_left(self, cluster: str) -> bool | dict[str, Any]:
        """Whether the cluster has left, whatever the bus may still hold of it.

        The answer for a member in a cloud is the facts of that, instead of False.
        """
        cloud = self._clusters.cloud(cluster)
        return self._clusters.has_left(cluster) or (cloud.model_dump(mode="json") if cloud else False)

    async def is_gone(self, ref: ObjectRef) -> bool:
        """Whether the Service is really gone: the bus may only have forgotten it."""
        if self._clusters.has_left(ref.cluster):
            return True
        if self._clusters.is_asleep(ref.cluster):
            return False
        kube = await self._clusters.get(ref.cluster)
        return await kube.find(SERVICES, ref.namespace, ref.name) is None

    async def patch(self, ref: ObjectRef, patch: dict[str, Any]) -> str:
        """Patch the Service. Returns its new resource version."""
        kube = await self._clusters.get(ref.cluster)
        # Like Kubernetes' service controller, we have no right to patch Services, only their status.
        patched = await kube.strategic_merge(SERVICES, ref.namespace, ref.name, patch, part="status")
        return patched.resource_version
