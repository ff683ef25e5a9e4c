"""The claims of DNSRecords to names: to find twins before a deletion, and drift."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import NamedTuple

from bus.transport.connection import Bus
from bus.views import View
from windowbox.errors import Malformed
from windowbox.models.gardener.dnsrecord import DNSRecordSpec
from windowbox.models.objects import Object
from windowbox.models.recordsets import RecordKey, RecordSet, RecordType
from windowbox.models.refs import DNSRECORDS, ObjectRef
from workers.core.lifecycle import actuators, runpredicates
from workers.core.lifecycle.runpredicates import Scope
from workers.dns.record import cloudzones, records

_PATIENCE = 15.0
"""Seconds for which a deletion waits for other clusters to be listed."""

_MOST_DISPLACED = 100
"""DNSRecords enqueued at once when a name becomes free; the others wait for their retries."""


class Claim(NamedTuple):
    """The record set that one DNSRecord of ours asks for."""

    key: RecordKey
    zone: str
    wanted: RecordSet | None
    """None while a run is due: drift is measured only once the name has been written."""


def claim(object: Object, scope: Scope, zones: Collection[str]) -> Claim | None:
    """The claim of `object`; None if it is not ours, is being deleted or migrated, or is invalid."""
    migrated = object.last_operation.get("type") == "Migrate"
    if not runpredicates.responsible(object, scope) or object.deleting or migrated:
        return None
    try:
        spec = actuators.parsed_spec(DNSRecordSpec, object)
        zone = cloudzones.zone_for(spec, object.status.get("zone"), zones)
        idle = (
            not runpredicates.wants_run(object)
            and object.status.get("observedGeneration") == object.generation
        )
        return Claim(records.key(spec, zone), zone, records.wanted(spec, zone) if idle else None)
    except Malformed:
        return None


class Claims:
    """All claims of the DNSRecords on the bus. `clusters` names the clusters that may have some."""

    def __init__(
        self, bus: Bus, scope: Scope, zones: Collection[str], clusters: Callable[[], Collection[str]]
    ) -> None:
        self._clusters = clusters
        self._awaited: dict[str, float] = {}
        self._view: View[Claim] = View(
            bus,
            DNSRECORDS.id,
            lambda _, object: claim(object, scope, zones),
            index=lambda found: (found.zone, found.key),
            changed=self._notice,
        )
        self._known: set[str] = set()
        self.newly_listed = asyncio.Event()
        """Set when a cluster has been listed: its claims are complete only then."""

    @property
    def listed(self) -> set[str]:
        """The clusters whose DNSRecords are complete."""
        return self._view.listed

    async def run(self) -> None:
        """Follow all DNSRecords, for ever. A new call starts from a full listing."""
        await self._view.run()

    async def complete(self) -> None:
        """Wait until all DNSRecords that existed at the start have been read."""
        await self._view.complete.wait()

    async def find(self, ref: ObjectRef, zone: str, record: RecordKey) -> ObjectRef | None:
        """Another DNSRecord that asks for the same name and type, in the same zone.

        Raises NotListed until the record's own cluster is listed: an unknown twin would lose its name. Other
        clusters are waited for only briefly, so that an unreachable one does not block all deletions.
        """
        await self.complete()
        self._view.require_listed(ref.cluster)
        # A drift check restores names that were deleted too early, once the other clusters are listed.
        now, missing = time.monotonic(), set(self._clusters()) - self._view.listed
        self._awaited = {cluster: self._awaited.get(cluster, now) for cluster in missing}
        for cluster, since in self._awaited.items():
            if now - since < _PATIENCE:
                self._view.require_listed(cluster)
        return next((other for other in self._view.refs((zone, record)) if other != ref), None)

    async def displaced(self, ref: ObjectRef, zone: str, record: RecordKey) -> list[ObjectRef]:
        """Other DNSRecords that ask for types which cannot coexist with `record`, up to a limit."""
        await self.complete()
        others: tuple[RecordType, ...] = ("A", "AAAA", "TXT") if record.type == "CNAME" else ("CNAME",)
        names = (RecordKey(record.name, other) for other in others)
        found = (other for name in names for other in self._view.refs((zone, name)) if other != ref)
        return list(itertools.islice(found, _MOST_DISPLACED))

    def claimed(self, zone: str, record: RecordKey) -> bool:
        """Whether any DNSRecord asks for the name and type."""
        return bool(self._view.refs((zone, record)))

    def idle(self) -> dict[str, dict[RecordKey, tuple[ObjectRef, RecordSet]]]:
        """By zone, the record sets that the server should answer now."""
        zones: dict[str, dict[RecordKey, tuple[ObjectRef, RecordSet]]] = defaultdict(dict)
        for ref, found in self._view.items():
            if found.wanted:
                zones[found.zone][found.key] = (ref, found.wanted)
        return zones

    def _notice(self) -> None:
        if self._view.listed != self._known:
            self._known = set(self._view.listed)
            self.newly_listed.set()
