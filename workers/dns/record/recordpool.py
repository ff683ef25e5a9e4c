"""The pool `dnsrecord`, put together."""

from __future__ import annotations

import asyncio
import dataclasses

from bus.clusters.registry import Member
from bus.workqueue.queue import Queue
from windowbox.kinds import Served
from windowbox.models.refs import DNSRECORDS, RUNTIME
from workers.core.serving import Common, Serving, scope
from workers.dns.record.actuator import KIND, DNSRecordActuator
from workers.dns.record.claims import Claims
from workers.dns.record.drift import DriftCheck
from workers.dns.record.gauges import NameserverGauges
from workers.dns.record.orphans import OrphanedNames
from workers.dns.record.twins import LEASE, SharedTwins


def serving(common: Common, row: Served) -> Serving:
    dns, nameserver = common.dns, common.nameserver

    def clusters() -> set[str]:
        members = common.registry.members
        return {RUNTIME, *(one for one in common.registry.served() if _has_records(members[one]))}

    claims = Claims(common.bus, scope(common, KIND), [zone.name for zone in dns.zones], clusters)
    queue = Queue(common.bus, row.pool)
    orphans = OrphanedNames(common.bus, nameserver, claims, queue, dns.zones)
    drift = DriftCheck(nameserver, claims, orphans, queue, dns.drift_interval)
    twins = SharedTwins(common.bus, claims)

    async def follow() -> None:
        """What one worker does for all."""
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


def _has_records(member: Member) -> bool:
    return not member.kinds or DNSRECORDS.id in member.kinds
