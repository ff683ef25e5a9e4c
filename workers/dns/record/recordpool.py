"""The pool `dnsrecord`, put together."""

from __future__ import annotations

import asyncio
import dataclasses

from prometheus_client import Counter

from bus.workqueue.queue import Queue
from windowbox.clients.nameserver import Nameserver
from windowbox.kinds import Served
from windowbox.models.refs import DNSRECORDS, RUNTIME
from windowbox.telemetry import metrics
from workers.core.serving import Common, Serving, scope
from workers.dns.record.actuator import KIND, DNSRecordActuator
from workers.dns.record.claims import Claims
from workers.dns.record.drift import DriftCheck
from workers.dns.record.orphans import OrphanedNames
from workers.dns.record.twins import LEASE, SharedTwins


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

    async def follow() -> None:
        """The part that one worker does for all, by lease."""
        async with asyncio.TaskGroup() as group:
            for act in (claims.run, twins.answer, drift.run):
                group.create_task(act())

    return Serving(
        KIND,
        DNSRecordActuator(nameserver, dns, twins, queue),
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
