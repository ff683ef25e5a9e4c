"""The pool `dnsrecord`, put together."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

from prometheus_client import Counter

from bus import subjects
from bus.leases import guard
from bus.messages import Reason, Wish
from bus.workqueue.queue import Queue
from windowbox.clients.nameserver import Nameserver
from windowbox.errors import WindowboxError
from windowbox.kinds import Served
from windowbox.models.recordsets import RecordKey, RecordSet
from windowbox.models.refs import DNSRECORDS, RUNTIME, ObjectRef
from windowbox.telemetry import metrics
from workers.core.cloudaccounts import CloudAccounts
from workers.core.serving import Common, Serving, scope
from workers.dns.record.actuator import KIND, DNSRecordActuator
from workers.dns.record.claims import Claims
from workers.dns.record.cloudzones import HostedZones
from workers.dns.record.orphans import OrphanedNames
from workers.dns.record.twins import LEASE, SharedTwins

logger = logging.getLogger(__name__)


def serving(common: Common, row: Served) -> Serving:
    dns, nameserver = common.dns, common.nameserver

    def clusters() -> set[str]:
        """Clusters with DNSRecords. Members that name no kinds serve all."""
        members = common.registry.members
        with_records = (
            name
            for name in common.registry.served()
            if not members[name].kinds or DNSRECORDS.id in members[name].kinds
        )
        return {RUNTIME, *with_records}

    claims = Claims(common.bus, scope(common, KIND), [zone.name for zone in dns.zones], clusters)
    queue = Queue(common.bus, row.pool)
    orphans = OrphanedNames(common.bus, nameserver, claims, queue, dns.zones)
    drift = DriftCheck(nameserver, claims, orphans, queue, dns.drift_interval)
    twins = SharedTwins(common.bus, claims)
    hosted_zones = HostedZones(CloudAccounts(common.bus, common.clusters))

    async def follow() -> None:
        """The part that one worker does for all, by lease."""
        async with asyncio.TaskGroup() as group:
            for task, act in (("claims", claims.run), ("twins", twins.answer), ("drift", drift.run)):
                group.create_task(guard.kept(f"{task} of dnsrecord", act))

    return Serving(
        KIND,
        DNSRecordActuator(nameserver, dns, hosted_zones, twins, queue),
        leased={LEASE: follow},
        details={"zones": lambda: [dataclasses.asdict(zone) for zone in nameserver.stats()]},
        gauges=(NameserverGauges(nameserver).update,),
        # Changes that come together are sent to the name server in one message: the more, the better.
        concurrency=None,
        ranked=True,
    )


class NameserverGauges:
    """Copies the counters of the connections into the metrics."""

    def __init__(self, nameserver: Nameserver) -> None:
        self._nameserver = nameserver
        self._counted: dict[tuple[Counter, str], int] = {}

    async def update(self) -> None:
        for zone in self._nameserver.stats():
            for counter, counted in (
                (metrics.dns_messages, zone.messages),
                (metrics.dns_rrsets, zone.rrsets),
                (metrics.dns_reconnections, zone.reconnections),
            ):
                before = self._counted.get((counter, zone.zone), 0)
                # The counters of a new connection start at zero.
                counter.labels(zone.zone).inc(counted - before if counted >= before else counted)
                self._counted[counter, zone.zone] = counted
            metrics.dns_waiting.labels(zone.zone).set(zone.waiting)
            metrics.dns_connected.labels(zone.zone).set(zone.connected)
            metrics.dns_breaker.labels(zone.zone).set(zone.breaker_open)


class DriftCheck:
    """Compares the zones with the wanted records: periodically, when a name server comes back, and when a
    cluster has been listed.

    It does not write: it enqueues drifted records, since the queue keeps the order of changes of each.
    """

    def __init__(
        self, nameserver: Nameserver, claims: Claims, orphans: OrphanedNames, queue: Queue, interval: float
    ) -> None:
        self._nameserver = nameserver
        self._claims = claims
        self._orphans = orphans
        self._queue = queue
        self._interval = interval

    async def run(self) -> None:
        """Check for ever. Only the holder of the lease calls this."""
        await self._claims.complete()
        due = self._claims.newly_listed

        async def listen() -> None:
            async for zone in self._nameserver.reconnected():
                logger.info("zone %s: its name server is back; comparing", zone)
                due.set()

        listening = asyncio.create_task(listen(), name="drift: listen")
        try:
            while True:
                due.clear()
                await self._check()
                await self._orphans.check()
                try:
                    async with asyncio.timeout(self._interval):
                        await due.wait()
                except TimeoutError:
                    continue
        finally:
            listening.cancel()

    async def _check(self) -> None:
        for zone, idle in self._claims.idle().items():
            try:
                with guard.isolated("drift of dnsrecord", f"zone {zone}"):
                    await self._check_zone(zone, idle)
            except WindowboxError as error:
                logger.info("zone %s cannot be compared: %s", zone, error)

    async def _check_zone(self, zone: str, idle: dict[RecordKey, tuple[ObjectRef, RecordSet]]) -> None:
        drifted = await self._nameserver.drifted(zone, [wanted for _, wanted in idle.values()])
        for record in drifted:
            await self._queue.remind(subjects.key(idle[record][0]), Wish(reason=Reason.DRIFT))
        if drifted:
            logger.warning("zone %s: %d records drifted; repairing them", zone, len(drifted))
