"""Allocation of addresses, as recorded calls of runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never

from bus import subjects
from bus.messages import Reason, Wish
from bus.workqueue.queue import Queue
from windowbox.models.loadbalancers import Family
from windowbox.models.refs import ObjectRef
from workers.core.recorder import Recorder
from workers.loadbalancer.ipam import allocator
from workers.loadbalancer.ipam.results import AddressRequest, Allocated, Queued, Rejected, Released
from workers.loadbalancer.ipam.store import AddressStore


@dataclass(frozen=True)
class Given:
    """The result of an allocation."""

    addresses: dict[Family, str]
    reason: str = ""
    note: str = ""
    """Why there is no address, for people."""
    notice: str = ""
    """What is not as it was asked for, though it gave something."""


class Addresses:
    """Allocates and releases addresses, and requeues Services that waited for them."""

    def __init__(self, store: AddressStore, queue: Queue) -> None:
        self._store = store
        self._queue = queue

    async def allocate(self, request: AddressRequest, recorder: Recorder) -> Given:
        """The addresses of the Service. It keeps what it has, if that still fits the request."""
        fields: dict[str, Any] = {
            "families": list(request.families),
            "requested": list(request.requested),
            "share": request.share,
            "ports": list(request.ports),
            "adopt": list(request.adopt),
            **({"shown": list(request.shown)} if request.shown else {}),
            **({"content": True} if request.content else {}),
            **({"avoid": list(request.avoid)} if request.avoid else {}),
        }

        async def act() -> dict[str, Any]:
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

        return Given(**await recorder.call("addresses", {"take": fields}, act, effect=True))

    async def version(self, ref: ObjectRef, uid: str, recorder: Recorder) -> str:
        """The resource version since which the Service has our finalizer; empty if it holds no address."""

        async def act() -> str:
            return next((h.version for _, h in self._store.held(ref) if h.uid == uid and not h.until), "")

        return str(await recorder.call("addresses", {"version": str(ref)}, act))

    async def leftovers(self, ref: ObjectRef, uid: str, recorder: Recorder) -> list[str] | None:
        """The addresses that the Service still holds; None if it holds none and does not wait for one."""

        async def act() -> list[str] | None:
            has = [a for a, holder in self._store.held(ref) if holder.uid == uid and not holder.until]
            waiter = self._store.waiter(ref)
            return has if has or (waiter and waiter.uid == uid) else None

        found: list[str] | None = await recorder.call("addresses", {"left": str(ref)}, act)
        return found

    async def step_back(self, ref: ObjectRef, recorder: Recorder) -> None:
        """Leave the queue: a Service that cannot be served must not hold up those behind it."""

        async def act() -> None:
            await self._released(await self._store.step_back(ref))

        await recorder.call("addresses", {"step back": str(ref)}, act)

    async def release(self, ref: ObjectRef, recorder: Recorder) -> None:
        """Release all that a Service of this name holds."""

        async def act() -> list[str]:
            return list(await self._released(await self._store.release(ref)))

        await recorder.call("addresses", {"release": str(ref)}, act, effect=True)

    async def release_others(self, ref: ObjectRef, uid: str, recorder: Recorder) -> None:
        """Release what a former Service of this name has left."""

        async def act() -> list[str]:
            if all(holder.uid == uid for _, holder in self._store.held(ref)):
                return []
            return list(await self._released(await self._store.release(ref, keep_uid=uid)))

        await recorder.call("addresses", {"release others": str(ref)}, act)

    async def keep(self, ref: ObjectRef, uid: str, until: datetime, recorder: Recorder) -> None:
        """Keep the addresses of a Service that is no load balancer for now."""

        async def act() -> None:
            await self._released(await self._store.keep(ref, uid, until.timestamp()))

        await recorder.call("addresses", {"keep": str(ref)}, act, effect=True)

    async def release_expired(self, ref: ObjectRef, now: datetime, recorder: Recorder) -> None:
        """Release what was kept long enough."""

        async def act() -> list[str]:
            return list(await self._released(await self._store.release_expired(ref, now.timestamp())))

        await recorder.call("addresses", {"release expired": str(ref)}, act)

    async def _released(self, released: Released) -> tuple[str, ...]:
        await self._wake(released.wake)
        return released.addresses

    async def _wake(self, waiting: Iterable[ObjectRef]) -> None:
        for ref in waiting:
            await self._queue.wish(subjects.key(ref), Wish(reason=Reason.ADDRESS))
