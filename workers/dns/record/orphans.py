"""Orphaned names: records in a zone whose owner's mark names a DNSRecord that is gone.

Only zones with the setting `ownership` have marks. A zone transfer lists them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import NamedTuple

from bus import intents, streams, subjects
from bus.leases import guard
from bus.messages import Announcement, Reason, Wish
from bus.transport.connection import Bus
from bus.workqueue.queue import Queue
from windowbox.clients.nameserver import Mark, Nameserver
from windowbox.errors import Refused, WindowboxError
from windowbox.models.clouds import BY_DNS_TYPE
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, ObjectRef
from windowbox.settings.dnssettings import ZoneSettings
from workers.core.lifecycle.actuators import Run
from workers.dns.record.claims import Claims

logger = logging.getLogger(__name__)

MOST = 500
"""Names of one zone removed at once; the next check continues."""
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")


class Resource(NamedTuple):
    """The DNSRecord in a mark."""

    ref: ObjectRef
    uid: str


def stays(run: Run) -> bool:
    """Whether the record's name stays during a migration, while no object owns it.

    A control plane of a self-hosted Shoot moves along, and keeps its address. Extensions of clouds leave
    their names to the other seed.
    """
    return run.object.spec.get("type") in BY_DNS_TYPE or (run.shoot is not None and run.shoot.self_hosted)


def resource(run: Run) -> str:
    """The DNSRecord for the mark of the run's record; empty if its name stays during a migration."""
    if stays(run):
        return ""
    return "/".join((run.ref.cluster, run.ref.namespace, run.ref.name, run.object.uid))


def parsed(text: str) -> Resource | None:
    """None if the text cannot name a DNSRecord: every client that may update the zone can write marks."""
    parts = text.split("/")
    if len(parts) != 4 or not all(map(_PART.fullmatch, parts)):
        return None
    cluster, namespace, name, uid = parts
    return Resource(ObjectRef(cluster, DNSRECORDS.id, namespace, name), uid)


class OrphanedNames:
    """Finds orphaned names, and enqueues their DNSRecords, whose runs ask the API before they remove one."""

    def __init__(
        self, bus: Bus, nameserver: Nameserver, claims: Claims, queue: Queue, zones: Collection[ZoneSettings]
    ) -> None:
        self._bus = bus
        self._nameserver = nameserver
        self._claims = claims
        self._queue = queue
        self._zones = [zone.name for zone in zones if zone.ownership and not zone.key_from_record]
        self._refused: set[str] = set()

    async def check(self) -> None:
        """Enqueue the orphaned names of all zones for removal."""
        for zone in self._zones:
            try:
                with guard.isolated("drift of dnsrecord", f"zone {zone}"):
                    await self._check(zone)
                    self._refused.discard(zone)
            except Refused as error:
                if zone not in self._refused:
                    self._refused.add(zone)
                    logger.warning("the search for orphaned names failed: %s", error)
            except WindowboxError as error:
                logger.info("zone %s is not searched for orphaned names: %s", zone, error)

    async def _check(self, zone: str) -> None:
        found = 0
        for mark in await self._nameserver.marks(zone):
            owner = parsed(mark.resource)
            if owner is None or not await self._is_orphan(zone, mark, owner):
                continue
            if found == MOST:
                logger.warning("zone %s: more than %d names are orphaned", zone, MOST)
                break
            found += 1
            key, ref = subjects.key(owner.ref), owner.ref
            metadata = {"namespace": ref.namespace, "name": ref.name, "uid": owner.uid}
            spec = {"type": "local", "name": mark.key.name, "recordType": mark.key.type}
            needed = {"values": [], "secretRef": {"name": "", "namespace": ref.namespace}}
            last = {"metadata": metadata, "spec": spec | needed, "status": {"zone": zone}}
            await intents.keep_orphan(self._bus, key, Object(last))
            await self._queue.remind(key, Wish(reason=Reason.DRIFT))
        if found:
            logger.warning("zone %s: %d names belong to DNSRecords that are gone; removing", zone, found)

    async def _is_orphan(self, zone: str, mark: Mark, owner: Resource) -> bool:
        """Whether nothing that the bus knows needs the name. Of unlisted clusters it knows too little."""
        if owner.ref.cluster not in self._claims.listed or self._claims.claimed(zone, mark.key):
            return False
        last = await self._bus.last(streams.OBJECTS, subjects.seen(owner.ref))
        seen = Announcement(last) if last else None
        return seen is None or seen.gone or seen.uid != owner.uid
