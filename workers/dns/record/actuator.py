"""Writes the records of DNSRecords to the name servers, and removes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from bus import subjects
from bus.messages import Reason, Wish
from bus.workqueue.queue import Queue
from windowbox.clients.nameserver import Nameserver, TsigKey, ask_resolver
from windowbox.errors import Malformed, NotListed, WindowboxError
from windowbox.models.clouds import BY_DNS_TYPE
from windowbox.models.gardener.dnsrecord import DNSRecordSpec
from windowbox.models.objects import Object
from windowbox.models.recordsets import RecordKey
from windowbox.models.refs import DNSRECORDS, SECRETS, ObjectRef
from windowbox.settings.dnssettings import DnsSettings, ZoneSettings
from workers.core.lifecycle import actuators, statuses
from workers.core.lifecycle.actuators import Actuator, Kind, Need, Run, Status
from workers.core.lifecycle.operations import Flow
from workers.dns.record import cloudzones, orphans, records
from workers.dns.record.cloudzones import HostedZones
from workers.dns.record.twins import PATIENCE, Twins

KIND = Kind(
    resource=DNSRECORDS,
    pool="dnsrecord",
    finalizer="extensions.gardener.cloud/dnsrecord",
    descriptions=statuses.descriptions_for("DNSRecord"),
    classes=frozenset({"garden", "seed", "shoot"}),
    clouds=BY_DNS_TYPE,
    deadline=180.0,
    shoot=Need.OPTIONAL,
)

_MOST_FORMER = 20
"""Former places of a record. Beyond these, nothing new is written before they are empty."""

_LAST_TRY = 2 * PATIENCE
"""Seconds, enough for the answer that there is no twin."""

_WRITTEN = "written"


class Place(NamedTuple):
    """A record set in a zone.

    A DNSRecord whose name, type or zone changes has to leave its former place. Gardener's webhook forbids
    such changes of name and type; clusters without it allow them.
    """

    zone: str
    key: RecordKey

    def excludes(self, other: Place) -> bool:
        """Whether the two cannot coexist: nothing stands beside a CNAME."""
        same_name = (self.zone, self.key.name) == (other.zone, other.key.name)
        return same_name and self.key.type != other.key.type and "CNAME" in (self.key.type, other.key.type)


class DNSRecordActuator(Actuator):
    """Makes a name resolve as its DNSRecord says, or no longer."""

    def __init__(
        self,
        nameserver: Nameserver,
        settings: DnsSettings,
        hosted_zones: HostedZones,
        twins: Twins,
        queue: Queue,
    ) -> None:
        self._nameserver = nameserver
        self._zones = {zone.name: zone for zone in settings.zones}
        self._ask_resolver = settings.resolver_check
        self._hosted_zones = hosted_zones
        self._twins = twins
        self._queue = queue

    async def reconcile(self, run: Run) -> Status:
        spec = actuators.parsed_spec(DNSRecordSpec, run.object)
        zone = self._zone(spec, run.object)
        status_zone = await self._hosted_zones.status_zone(run, spec, zone.name)
        wanted = records.wanted(spec, zone.name)
        here = Place(zone.name, wanted.key)
        former = [place for place in self._known(run.object, run.memo) if place != here]
        # A zone that is not configured now may be configured again later.
        unknown = [place for place in former if place.zone not in self._zones]
        if len(former) > _MOST_FORMER:
            for place in former:
                await self._leave(run, place)
            former = unknown
        # Note the places before they are written, so that none is lost if the process dies. The first place
        # of all almost never changes, and is kept with the first report.
        before = _noted(run.memo)
        _note(run.memo, [*former, here])
        if before and before != [*former, here]:
            await run.remember()
        for place in former:
            if place.excludes(here):
                await self._leave(run, place)
        key, resource = await self._key(run, zone), orphans.resource(run)
        name = {"zone": zone.name, "name": here.key.name, "type": here.key.type}
        request = {"do": "replace", **name, "ttl": wanted.ttl, "values": list(wanted.values)}

        async def replace() -> None:
            await self._nameserver.replace(zone.name, wanted, key=key, resource=resource)

        await run.recorder.call("dns", request, replace, effect=True)
        for place in former:
            if not place.excludes(here):
                await self._leave(run, place)
        _note(run.memo, [*unknown, here])
        if self._ask_resolver:
            # For `trace` only: the resolver of this host may lag, which is no failure.
            await run.recorder.call("resolver", {"name": here.key.name}, ask_resolver, wanted)
        return {"zone": status_zone}

    async def delete(self, run: Run) -> None:
        if statuses.never_created(run.object.status.get("conditions") or ()):
            # The first attempt failed, but perhaps only its answer was lost: one more message costs nothing.
            await self.force_delete(run)
        else:
            await self._hosted_zones.account(run)  # without credentials a cloud deletes nothing
            await self._remove(run)

    async def force_delete(self, run: Run) -> None:
        try:
            async with asyncio.timeout(_LAST_TRY):
                await self._remove(run)
        except NotListed:
            raise  # twins are known in a moment, and then the name can be removed
        except (WindowboxError, TimeoutError):
            pass

    async def clean_up(self, run: Run, successor: Object | None) -> None:
        kept = self._places(successor, {}) if successor and not successor.deleting else []
        for place in self._places(run.object, run.memo):
            if place not in kept:
                await self._leave(run, place)

    async def migrate(self, run: Run) -> None:
        if not orphans.stays(run):
            await self.delete(run)

    def conditions(
        self, object: Object, flow: Flow, succeeded: bool, now: datetime
    ) -> list[dict[str, Any]] | None:
        before = object.status.get("conditions") or ()
        return statuses.created_condition(before, flow, succeeded, now) or None

    async def _remove(self, run: Run) -> None:
        for place in self._places(run.object, run.memo):
            await self._leave(run, place)
        run.memo.clear()

    def _places(self, object: Object, memo: Mapping[str, Any]) -> list[Place]:
        """Where record sets of the object may be; without a report, where its spec puts them."""
        known = self._known(object, memo)
        if not memo:
            with contextlib.suppress(Malformed):  # what we refused to write is not there
                spec = actuators.parsed_spec(DNSRecordSpec, object)
                zone = self._zone(spec, object)
                known.append(Place(zone.name, records.key(spec, zone.name)))
        return list(dict.fromkeys(known))

    def _known(self, object: Object, memo: Mapping[str, Any]) -> list[Place]:
        """Where record sets may be according to reports. Those of earlier versions name only the zone."""
        zone = cloudzones.reported_zone(
            str(object.spec.get("type")), object.status.get("zone"), self._zones.keys()
        )
        if memo or zone not in self._zones:
            return _noted(memo)
        try:
            return [Place(zone, records.key(actuators.parsed_spec(DNSRecordSpec, object), zone))]
        except Malformed:
            return []  # such a name was never written there

    async def _leave(self, run: Run, place: Place) -> None:
        """Delete the record set, unless another DNSRecord needs it or its zone is not configured."""
        zone, record = self._zones.get(place.zone), place.key
        if zone is None:
            return
        name = {"zone": zone.name, "name": record.name, "type": record.type}

        async def twin() -> str | None:
            found = await self._twins.find(run.ref, place.zone, record)
            if found:
                # The twin has to compare the name with its own values: ours may be there.
                await self._queue.wish(subjects.key(found), Wish(reason=Reason.DRIFT))
            return str(found) if found else None

        if await run.recorder.call("twin", name, twin):
            return
        key = await self._key(run, zone)

        async def delete() -> None:
            await self._nameserver.delete(place.zone, record, key=key)
            # DNSRecords that this record kept out can be written now. Without this hint, they retry later.
            with contextlib.suppress(NotListed):
                for displaced in await self._twins.displaced(run.ref, place.zone, record):
                    await self._queue.wish(subjects.key(displaced), Wish(reason=Reason.DRIFT))

        await run.recorder.call("dns", {"do": "delete"} | name, delete, effect=True)

    async def _key(self, run: Run, zone: ZoneSettings) -> TsigKey | None:
        """The key in the record's Secret, for zones with `key_from_record`."""
        if not zone.key_from_record:
            return None
        where = run.object.spec.get("secretRef") or {}
        name, namespace = where.get("name"), where.get("namespace") or run.ref.namespace
        if not name:
            raise Malformed(
                f"spec.secretRef.name is empty: name the Secret that holds the key of {zone.name}"
            )
        ref = ObjectRef(run.ref.cluster, SECRETS.id, namespace, name)
        return await run.recorder.secret(ref, TsigKey.from_secret_data)

    def _zone(self, spec: DNSRecordSpec, object: Object) -> ZoneSettings:
        return self._zones[cloudzones.zone_for(spec, object.status.get("zone"), self._zones.keys())]


def _noted(memo: Mapping[str, Any]) -> list[Place]:
    """All places written since they were last known to be empty, and perhaps more."""
    return [Place(zone, RecordKey(name, type)) for zone, name, type in memo.get(_WRITTEN, ())]


def _note(memo: dict[str, Any], places: Iterable[Place]) -> None:
    memo[_WRITTEN] = [[place.zone, place.key.name, place.key.type] for place in places]
