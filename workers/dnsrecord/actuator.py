"""Writes the records of DNSRecords to the name servers, and removes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from bus import subjects
from bus.messages import Reason, Wish
from bus.queue import Queue
from windowbox.clients.nameserver import Nameserver, TsigKey, ask_resolver
from windowbox.errors import Malformed, NotListed, WindowboxError
from windowbox.models.dnsrecord import DNSRecordSpec
from windowbox.models.dnssettings import DnsSettings, ZoneSettings
from windowbox.models.objects import Object
from windowbox.models.recordsets import RecordKey, RecordSet
from windowbox.models.refs import DNSRECORDS, SECRETS, ObjectRef
from workers.dnsrecord import orphans, records
from workers.dnsrecord.twins import PATIENCE, Twins
from workers.lifecycle import specs, statuses
from workers.lifecycle.kinds import Actuator, Kind, Need, Run, Status
from workers.lifecycle.operations import Flow

KIND = Kind(
    resource=DNSRECORDS,
    pool="dnsrecord",
    finalizer="extensions.gardener.cloud/dnsrecord",
    descriptions=statuses.descriptions_for("DNSRecord"),
    classes=frozenset({"garden", "seed", "shoot"}),
    deadline=180.0,
    shoot=Need.OPTIONAL,
)

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
        await self._leave_former_zone(run, spec, zone)
        key = await self._key(run, zone)
        request = {"do": "replace", "zone": zone.name, **_described(wanted)}

        async def act() -> None:
            resource = orphans.resource(run)
            await self._nameserver.replace(
                zone.name, wanted, key=key, owner=zone.ownership, resource=resource
            )

        await self._act(run, request, act)
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
        kept = self._locations(successor) if successor and not successor.deleting else []
        for zone, record in self._locations(run.object):
            if (zone, record) not in kept:
                await self._delete(run, zone, record)

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
        for zone, record in self._locations(run.object):
            await self._delete(run, zone, record)

    def _locations(self, object: Object) -> list[tuple[ZoneSettings, RecordKey]]:
        """Where the record is by the last report, and where a run that could not report may have put it."""
        locations: list[tuple[ZoneSettings, RecordKey]] = []
        with contextlib.suppress(Malformed):  # what we refused to write is not there
            spec = specs.parsed(DNSRecordSpec, object)
            former = self._former_zone(object)
            if former:
                with contextlib.suppress(Malformed):
                    locations.append((former, records.key(spec, former.name)))
            zone = self._zone(spec, object)
            if zone != former:
                locations.append((zone, records.key(spec, zone.name)))
        return locations

    async def _delete(self, run: Run, zone: ZoneSettings, record: RecordKey) -> None:
        if await self._left_to_twin(run, zone, record):
            return  # another DNSRecord asks for the same name: it stays
        key = await self._key(run, zone)
        request = {"do": "delete", "zone": zone.name, "name": record.name, "type": record.type}

        async def act() -> None:
            await self._nameserver.delete(zone.name, record, key=key, owner=zone.ownership)
            # What could not be written because of this record can be now.
            for displaced in await self._twins.displaced(run.ref, zone.name, record):
                await self._queue.wish(subjects.key(displaced), Wish(reason=Reason.DRIFT))

        await self._act(run, request, act)

    async def _leave_former_zone(self, run: Run, spec: DNSRecordSpec, zone: ZoneSettings) -> None:
        """A record whose `spec.zone` has changed must not stay in the zone where it was."""
        former = self._former_zone(run.object)
        if former and former != zone:
            try:
                record = records.key(spec, former.name)
            except Malformed:
                return  # nor could the name have been written there
            await self._delete(run, former, record)

    def _former_zone(self, object: Object) -> ZoneSettings | None:
        return self._zones.get(str(object.status.get("zone") or ""))

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
