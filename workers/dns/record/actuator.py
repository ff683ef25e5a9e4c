"""Writes the records of DNSRecords to the name servers, and removes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from bus import subjects
from bus.messages import Reason, Wish
from bus.workqueue.queue import Queue
from windowbox.clients.nameserver import Nameserver, TsigKey, ask_resolver
from windowbox.errors import Malformed, NotListed, WindowboxError
from windowbox.models.gardener.dnsrecord import DNSRecordSpec
from windowbox.models.objects import Object
from windowbox.models.recordsets import RecordKey, RecordSet
from windowbox.models.refs import DNSRECORDS, SECRETS, ObjectRef
from windowbox.settings.dnssettings import DnsSettings, ZoneSettings
from workers.core.lifecycle import specs, statuses
from workers.core.lifecycle.kinds import Actuator, Kind, Need, Run, Status
from workers.core.lifecycle.operations import Flow
from workers.dns.record import orphans, places, records
from workers.dns.record.places import Place
from workers.dns.record.twins import PATIENCE, Twins

KIND = Kind(
    resource=DNSRECORDS,
    pool="dnsrecord",
    finalizer="extensions.gardener.cloud/dnsrecord",
    descriptions=statuses.descriptions_for("DNSRecord"),
    classes=frozenset({"garden", "seed", "shoot"}),
    deadline=180.0,
    shoot=Need.OPTIONAL,
)

_MOST_FORMER = 20
"""Former places of a record. If more could not be left, nothing new is written before they are."""

_LAST_TRY = 2 * PATIENCE
"""Seconds. That nobody tells of twins is known by then."""


class DNSRecordActuator(Actuator):
    """Makes a name resolve as its DNSRecord says, or no longer."""

    def __init__(self, nameserver: Nameserver, settings: DnsSettings, twins: Twins, queue: Queue) -> None:
        self._nameserver = nameserver
        self._zones = {zone.name: zone for zone in settings.zones}
        self._ask_resolver = settings.resolver_check
        self._twins = twins
        self._queue = queue

    async def reconcile(self, run: Run) -> Status:
        spec = specs.parsed(DNSRecordSpec, run.object)
        zone = self._zone(spec, run.object)
        wanted = records.wanted(spec, zone.name)
        here = Place(zone.name, wanted.key)
        former = [place for place in self._known(run.object, run.memo) if place != here]
        # A zone that is not configured now may be again.
        unknown = [place for place in former if place.zone not in self._zones]
        if len(former) > _MOST_FORMER:
            await self._leave(run, former)
            former = unknown
        await self._note(run, [*former, here])
        await self._leave(run, [place for place in former if place.excludes(here)])
        key = await self._key(run, zone)
        request = {"do": "replace", "zone": zone.name, **_described(wanted)}

        async def act() -> None:
            resource = orphans.resource(run)
            await self._nameserver.replace(
                zone.name, wanted, key=key, owner=zone.ownership, resource=resource
            )

        await self._act(run, request, act)
        await self._leave(run, [place for place in former if not place.excludes(here)])
        places.note(run.memo, [*unknown, here])
        if self._ask_resolver:
            await self._note_resolver(run, wanted)
        return {"zone": zone.name}

    async def delete(self, run: Run) -> None:
        if statuses.never_created(run.object.status.get("conditions") or ()):
            # The first attempt failed, perhaps only by a lost answer: one more message costs nothing.
            await self._try_to_remove(run)
        else:
            await self._remove(run)

    async def force_delete(self, run: Run) -> None:
        await self._try_to_remove(run)

    async def _try_to_remove(self, run: Run) -> None:
        try:
            async with asyncio.timeout(_LAST_TRY):
                await self._remove(run)
        except NotListed:
            raise  # known in a moment, and then the name can be removed
        except (WindowboxError, TimeoutError):
            pass

    async def clean_up(self, run: Run, successor: Object | None) -> None:
        kept = self._places(successor, {}) if successor and not successor.deleting else []
        await self._leave(run, [place for place in self._places(run.object, run.memo) if place not in kept])

    async def migrate(self, run: Run) -> None:
        # A self-hosted Shoot takes its control plane, and so its address, along.
        if run.shoot is None or not run.shoot.self_hosted:
            await self.delete(run)

    def conditions(
        self, object: Object, flow: Flow, succeeded: bool, now: datetime
    ) -> list[dict[str, Any]] | None:
        before = object.status.get("conditions") or ()
        return statuses.created_condition(before, flow, succeeded, now) or None

    async def _remove(self, run: Run) -> None:
        await self._leave(run, self._places(run.object, run.memo))
        run.memo.clear()

    def _places(self, object: Object, memo: Mapping[str, Any]) -> list[Place]:
        """Where record sets of the object may be. Of a first run that could not report, its spec tells."""
        known = self._known(object, memo)
        if not memo:
            with contextlib.suppress(Malformed):  # what we refused to write is not there
                spec = specs.parsed(DNSRecordSpec, object)
                zone = self._zone(spec, object)
                known.append(Place(zone.name, records.key(spec, zone.name)))
        return list(dict.fromkeys(known))

    def _known(self, object: Object, memo: Mapping[str, Any]) -> list[Place]:
        """Where reports say that record sets may be. Those of earlier versions tell only the zone."""
        zone = str(object.status.get("zone") or "")
        if memo or zone not in self._zones:
            return places.noted(memo)
        try:
            return [Place(zone, records.key(specs.parsed(DNSRecordSpec, object), zone))]
        except Malformed:
            return []  # nor could the name have been written there

    async def _note(self, run: Run, written: list[Place]) -> None:
        """Note the places before they are written, so that none is forgotten if the process dies.

        The first place of all, which almost never changes, is kept with the first report.
        """
        before = places.noted(run.memo)
        places.note(run.memo, written)
        if before and before != written:
            await run.remember()

    async def _leave(self, run: Run, former: list[Place]) -> None:
        for place in former:
            if place.zone in self._zones:
                await self._delete(run, self._zones[place.zone], place.key)

    async def _delete(self, run: Run, zone: ZoneSettings, record: RecordKey) -> None:
        if await self._left_to_twin(run, zone, record):
            return  # another DNSRecord asks for the same name: it stays
        key = await self._key(run, zone)
        request = {"do": "delete", "zone": zone.name, "name": record.name, "type": record.type}

        async def act() -> None:
            await self._nameserver.delete(zone.name, record, key=key, owner=zone.ownership)
            # What could not be written because of this record can be now. Without this, it is retried later.
            with contextlib.suppress(NotListed):
                for displaced in await self._twins.displaced(run.ref, zone.name, record):
                    await self._queue.wish(subjects.key(displaced), Wish(reason=Reason.DRIFT))

        await self._act(run, request, act)

    async def _note_resolver(self, run: Run, wanted: RecordSet) -> None:
        """Note, for `trace`, whether this host resolves the name already. It may lag: that is no failure."""

        async def act() -> str:
            return (await ask_resolver(wanted)).text

        await run.recorder.call("resolver", {"name": wanted.key.name}, act)

    async def _left_to_twin(self, run: Run, zone: ZoneSettings, record: RecordKey) -> bool:
        """Whether a twin keeps the name. It compares the name with its own values then: ours may be there."""

        async def act() -> str | None:
            twin = await self._twins.find(run.ref, zone.name, record)
            if twin:
                await self._queue.wish(subjects.key(twin), Wish(reason=Reason.DRIFT))
            return str(twin) if twin else None

        request = {"zone": zone.name, "name": record.name, "type": record.type}
        return bool(await run.recorder.call("twin", request, act))

    async def _act(self, run: Run, request: dict[str, Any], act: Callable[[], Awaitable[None]]) -> None:
        await run.recorder.call("dns", request, act, effect=True)

    async def _key(self, run: Run, zone: ZoneSettings) -> TsigKey | None:
        """The key that the record brings along, where the settings say that it does."""
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
        former = object.status.get("zone")
        return self._zones[records.zone_for(spec.name, spec.zone, former, self._zones)]


def _described(wanted: RecordSet) -> dict[str, Any]:
    return {
        "name": wanted.key.name,
        "type": wanted.key.type,
        "ttl": wanted.ttl,
        "values": list(wanted.values),
    }
