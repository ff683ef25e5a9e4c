"""Orphans in the inventories of clouds: objects of Shoots whose Infrastructure is gone without a run.

Runs clean up after their Infrastructures. This finds what they miss: somebody removed a finalizer, or the bus
was rolled back. After a loss of the bus it also has Infrastructures make their objects again.
"""

from __future__ import annotations

import asyncio
import logging

from bus import subjects
from bus.clusters.clusters import Clusters
from bus.leases import guard
from bus.messages import Reason, Wish
from bus.transport.connection import Bus
from bus.views import View
from bus.workqueue.queue import Queue
from windowbox.errors import Conflict, WindowboxError
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.models.objects import Object
from windowbox.models.refs import INFRASTRUCTURES, ObjectRef
from windowbox.telemetry import metrics
from workers.core.cloudaccounts import CloudAccounts, Maker

logger = logging.getLogger(__name__)

_GRACE = 10.0
"""Seconds from a change to the check: runs may be about to do it."""
_AGAIN = 60.0
"""Seconds until the next check, after one that could not be completed."""


class CloudOrphans:
    """Compares inventories with Infrastructures, after one has gone and after each listing."""

    def __init__(
        self, bus: Bus, clusters: Clusters, accounts: CloudAccounts, *, grace: float = _GRACE
    ) -> None:
        self._view: View[bool] = View(
            bus, INFRASTRUCTURES.id, _has_objects, changed=self._changed, differs=self._differs
        )
        self._clusters = clusters
        self._accounts = accounts
        self._queue = Queue(bus, "infrastructure")
        self._grace = grace
        self._due = asyncio.Event()
        self._listings: dict[str, tuple[int, int]] = {}

    async def run(self) -> None:
        """Check for ever. For the holder of a lease."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._view.run())
            await guard.kept("orphans of clouds", self._check_again)

    def _changed(self) -> None:
        listings = {cluster: self._view.reading(cluster) for cluster in self._view.listed}
        if listings != self._listings:
            self._listings = listings
            self._due.set()

    def _differs(self, ref: ObjectRef, before: bool | None, after: bool | None) -> None:
        if after is None:
            self._due.set()

    async def _check_again(self) -> None:
        while True:
            await self._due.wait()
            await asyncio.sleep(self._grace)
            self._due.clear()
            try:
                complete = await self._check()
            except WindowboxError as error:
                logger.info("orphans in inventories of clouds are looked for later: %s", error)
                complete = False
            if not complete:
                asyncio.get_running_loop().call_later(_AGAIN, self._due.set)

    async def _check(self) -> bool:
        """Whether all that was found could be handled."""
        # Read before the Shoots: whoever claims an object is known before.
        claims = [one async for one in self._accounts.claims()]
        owners, kept, unreached = set[str](), set[ObjectRef](), set[str]()
        orphans: list[tuple[str, Maker]] = []
        async for owner, estate in self._accounts.estates():
            owners.add(owner)
            if (maker := estate.made_by) is not None:
                kept.add(maker.ref)
                if maker.ref.cluster in self._view.listed and self._view.get(maker.ref) is None:
                    orphans.append((owner, maker))
        for owner, maker in orphans:
            if maker.ref.cluster in unreached:
                continue
            try:
                await self._remove(owner, maker)
            except WindowboxError as error:
                logger.info("the cloud of %s has no owner, and cannot be removed: %s", owner, error)
                unreached.add(maker.ref.cluster)
        owners |= {ref.namespace for ref, _ in self._view.items()}  # those that the bus has lost
        for account, one in claims:
            if one.used_by.partition("/")[0] not in owners:  # a machine of a Shoot is SHOOT/MACHINE
                await self._accounts.free(account, one)
        for ref, has_objects in self._view.items():
            if has_objects and ref not in kept:
                await self._renew(ref)
        return not unreached

    async def _remove(self, owner: str, maker: Maker) -> None:
        kube = await self._clusters.get(maker.ref.cluster)
        if await kube.find(INFRASTRUCTURES, maker.ref.namespace, maker.ref.name) is not None:
            return
        try:
            await self._accounts.clean_up(owner, maker)
        except Conflict:
            # Perhaps a new Infrastructure of the name has taken it over, and has lost a claim.
            await self._renew(maker.ref)
            raise
        metrics.orphans.labels("infrastructure").inc()
        logger.warning("the cloud of %s was made for %s, which is gone: removed", owner, maker.ref)

    async def _renew(self, ref: ObjectRef) -> None:
        await self._queue.wish(subjects.key(ref), Wish(reason=Reason.DRIFT))


def _has_objects(ref: ObjectRef, one: Object) -> bool:
    """Whether the inventory has to have objects of an Infrastructure."""
    last = one.last_operation
    succeeded = last.get("state") == "Succeeded" and last.get("type") != "Migrate"
    return one.spec.get("type") in CLOUD_TYPES and succeeded and not one.deleting
