"""One reconcile of a Service: read → finalizer → allocate → wait for the edge → report; or clean up.

The address comes from `workers/loadbalancer/ipam/allocator.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from bus.messages import EventIntent, Reason, StatusIntent, Wish
from bus.outcomes import Done, Ignored, Outcome, RequeueAfter, Unfinished
from windowbox.errors import Missing, PermanentError, TransientError
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.loadbalancers import Family
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings, matches
from workers.core import clock
from workers.core.cloudfaults import CloudFaults
from workers.core.reconcile import Request
from workers.loadbalancer.edgestate import MOST_OCCUPIED, EdgeState
from workers.loadbalancer.ipam.results import REBUILDING, REFUSED, AddressRequest
from workers.loadbalancer.service import eventmessages, servicenames, servicestatus
from workers.loadbalancer.service.servicedoors import ServiceDoors
from workers.loadbalancer.service.servicenames import Names
from workers.loadbalancer.service.servicestatus import Standing
from workers.loadbalancer.spec import cloudterms, demands, fields, hostnames, listeners, selection
from workers.loadbalancer.spec.demands import Demand
from workers.loadbalancer.spec.selection import FINALIZER

_RETRY = Wish(reason=Reason.RETRY).insisting()
_REBUILDING = 20.0
"""Seconds after which a report says that allocations are still being rebuilt."""
_RECHECK, _RECHECK_REFUSED = 60.0, 300.0
"""Seconds until a Service without an address is reconciled again, if no event requeues it."""


@dataclass(frozen=True)
class Seen:
    """A Service as this run sees it, and the last report about it."""

    request: Request
    object: Object
    reported: StatusIntent | None
    now: datetime
    cloud: CloudFacts | None = None
    """The cloud of its cluster."""

    @property
    def ref(self) -> ObjectRef:
        return self.request.ref

    @property
    def last(self) -> StatusIntent | None:
        """The last report of a run about this very Service, not about a former one of its name."""
        ours = self.reported and self.reported.memo and self.reported.uid == self.object.uid
        return self.reported if ours else None

    @property
    def memo(self) -> dict[str, Any]:
        """The state that the last run has left for this one."""
        return self.last.memo if self.last else {}

    @property
    def said(self) -> tuple[str, ...]:
        """The reported addresses; its owner may have written others into the status."""
        return servicestatus.addresses(Object({"status": self.last.patch})) if self.last else ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in its status, or in the last report if that is not written yet."""
        return servicestatus.addresses(self.object) or self.said

    @property
    def remembered(self) -> Object:
        """The Service with the last reported status, even if that is not written yet."""
        return servicestatus.remembered(self.object, self.last.patch if self.last else {})


@dataclass(frozen=True)
class Given:
    """The answer of the allocator, as it is recorded."""

    addresses: dict[Family, str]
    reason: str = ""
    note: str = ""
    """Why there is no address, for people."""
    notice: str = ""
    """The difference from the request, though there is an address."""


class ServiceReconciler:
    """Reconciles Services. Idempotent; may be cancelled at any point."""

    def __init__(self, doors: ServiceDoors, settings: LoadBalancerSettings, faults: CloudFaults) -> None:
        self._doors = doors
        self._settings = settings
        self._faults = faults

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> dict[str, Any]:
        return {}  # the Event says it

    async def reconcile(self, request: Request) -> Outcome:
        ref, call = request.ref, request.recorder.call
        reported = await request.reports.last()
        if not matches(ref.cluster, self._settings.clusters):
            # It may have been served before.
            return await self._release(request, reported, "of a cluster that others serve")
        # The bus may still hold Services of a cluster that has left.
        left = ref.cluster != RUNTIME and await call("left", ref.cluster, self._doors.has_left, ref.cluster)
        found = None if left is True else await request.recorder.read(ref)
        if found is None:
            return await self._forget(request, reported)
        cloud = CloudFacts.model_validate(left) if left else None
        seen = Seen(request, found, reported, await clock.now(request.recorder), cloud)
        classes = (*self._settings.classes, *cloudterms.classes(cloud))
        ours = selection.is_ours(found, classes) and not found.deleting
        try:
            if selection.needs_cleanup(found):
                return await self._clean_up(seen)
            if ours:
                return await self._ensure(seen)
            has = await call("addresses", {"left": str(ref)}, self._doors.leftovers, ref, found.uid)
            if has is not None:
                # It was a load balancer until now: a run was cut off, or two changes came as one.
                return await self._clean_up(seen, has)
        except Missing:
            return Ignored("gone")  # its deletion comes over the bus
        except PermanentError as error:
            failed = eventmessages.sync_failed("ensure" if ours else "delete", str(error))
            await self._report(seen, {}, {**seen.memo, "failed": failed.note}, [failed])
            raise
        expired, now = {"release expired": str(ref)}, seen.now.timestamp()
        await call("addresses", expired, self._doors.release_expired, ref, now)
        if reported and seen.memo.get("gone") and not request.wish.changed:
            # Its last status is written, and no event announces the deletion of a Service that is not ours.
            await request.reports.forget(reported.uid)
        return Ignored("not ours")

    # Services that ask for a load balancer.

    async def _ensure(self, seen: Seen) -> Outcome:
        ref, wish, call = seen.ref, seen.request.wish, seen.request.recorder.call
        demand = demands.demand_in(ref.cluster, seen.object, self._settings, seen.cloud)
        if not demand.ports:
            # A Service that cannot be served must not hold up those behind it in the queue.
            await call("addresses", {"step back": str(ref)}, self._doors.step_back, ref)
            return await self._report_waiting(
                seen, demand, demand.refusals[0].note if demand.refusals else ""
            )

        # The finalizer comes before the allocation, so that a deletion cannot leak the address.
        version = await self._add_finalizer(seen)
        former = {"release others": str(ref)}
        if seen.reported and not seen.last:
            await self._remove_names(seen.request, servicenames.reported(seen.reported.memo))
        await call("addresses", former, self._doors.release_others, ref, demand.uid)
        asked = _address_request(seen, demand, version)
        await self._call_cloud(seen, demand)
        given = await self._allocate(seen.request, asked)
        if given.note:
            if given.reason == REBUILDING and (seen.addresses or wish.reason != Reason.RETRY):
                # The rebuilt store requeues the Service: only a lasting state is reported.
                return Unfinished(given.note, RequeueAfter(_RETRY, _REBUILDING))
            await self._report_waiting(seen, demand, given.note)
            recheck = _RECHECK_REFUSED if given.reason in REFUSED else _RECHECK
            return Unfinished(given.note, RequeueAfter(_RETRY, recheck))

        state = await self._edge_state(seen.request)
        avoid = _unusable(seen, demand, state)
        if not {*avoid}.isdisjoint(given.addresses.values()):
            given = await self._allocate(seen.request, replace(asked, avoid=avoid))
        digest = listeners.digest(demand.uid, listeners.listeners(demand, given.addresses))
        if state is None or state.uid != demand.uid or state.digest != digest:
            if not wish.overdue:
                return Unfinished("waiting for the edge")  # which requeues the Service
            note = "no edge has taken this load balancer: see `windowbox status` for workers and their edge"
            return await self._report_waiting(seen, demand, note)
        return await self._report_state(seen, demand, given, state)

    async def _call_cloud(self, seen: Seen, demand: Demand) -> None:
        """Have the cloud of the cluster make the load balancer, unless it serves; its errors are reported."""
        if seen.cloud is None or seen.memo.get("serves"):
            return
        try:
            # The cluster of a Shoot has the Shoot's technical id.
            calls, shoot = seen.request.recorder, seen.ref.cluster
            await self._faults.check_for(calls, seen.cloud.type, "balancers", shoot)
        except TransientError as error:
            await self._report_waiting(seen, demand, str(error))
            raise

    async def _add_finalizer(self, seen: Seen) -> str:
        """Add our finalizer. Returns the resource version of the Service that has it."""
        ref, uid, call = seen.ref, seen.object.uid, seen.request.recorder.call
        held = str(await call("addresses", {"version": str(ref)}, self._doors.version, ref, uid))
        if selection.has_finalizer(seen.object):
            return held or seen.object.resource_version
        if held and int(held) >= int(seen.object.resource_version or 0):
            return held  # the mirror does not show the finalizer yet
        patch = {"metadata": {"finalizers": [FINALIZER]}}
        return str(await call("patch", patch, self._doors.patch, ref, patch, effect=True))

    async def _allocate(self, request: Request, asked: AddressRequest) -> Given:
        # Fields that are newer than the first recordings are left out unless they are set.
        fields = {
            "families": list(asked.families),
            "requested": list(asked.requested),
            "share": asked.share,
            "ports": list(asked.ports),
            "adopt": list(asked.adopt),
            **({"shown": list(asked.shown)} if asked.shown else {}),
            **({"content": True} if asked.content else {}),
            **({"avoid": list(asked.avoid)} if asked.avoid else {}),
            **({"range": asked.range} if asked.range else {}),
        }
        act = self._doors.allocate
        return Given(**await request.recorder.call("addresses", {"take": fields}, act, asked, effect=True))

    async def _edge_state(self, request: Request) -> EdgeState | None:
        """The state that the edge reports; None if the edge does not serve the Service."""
        answer = await request.recorder.call("edge", None, self._doors.edge_state, request.ref)
        return EdgeState.model_validate(answer) if answer else None

    # Reports.

    async def _report_state(self, seen: Seen, demand: Demand, given: Given, state: EdgeState) -> Outcome:
        standing = Standing(
            demand,
            given.addresses,
            state.problems,
            waiting=bool(state.problems),
            backends=bool(state.backends),
            note=state.lacking,
            unreached=state.unreached,
        )
        names = await self._publish(seen, demand if standing.serves else None, given)
        hostname = _hostname(demand, given)
        standing = replace(standing, hostname=hostname if hostname in names else "")
        # A Service that was drained before it served shows no address yet.
        status = servicestatus.waiting if demand.drained and not seen.addresses else servicestatus.patch
        patch = status(seen.remembered, standing, seen.now, conditions=self._settings.conditions)
        refused = [event.note for event in eventmessages.refused(demand.refusals)]
        memo = {
            "digest": state.digest,
            "backends": list(state.backends),
            "problems": dict(state.problems),
            "serves": standing.serves,
            **({"names": names} if names else {}),
            **({"refused": refused} if refused else {}),
            **({"nodes refused": list(state.refused_nodes)} if state.refused_nodes else {}),
            **({"notice": given.notice} if given.notice else {}),
        }
        if standing.serves and hostname and not standing.hostname:
            memo["nameless"] = True
        events = _events(seen.memo, memo, demand, state)
        if "nameless" in memo and "nameless" not in seen.memo:
            events.append(eventmessages.no_zone(hostname))
        if state.refused_nodes and seen.memo.get("nodes refused") != memo["nodes refused"]:
            events.append(eventmessages.node_address_refused(state.refused_nodes))
        if given.notice and seen.memo.get("notice") != given.notice:
            events.append(eventmessages.address_not_shared(given.notice))
        await self._report(seen, patch, memo, events)
        again = None
        if unusable := _unusable(seen, demand, state):
            # No event announces the release of an address with free ports.
            why = f"other processes hold its ports at {', '.join(unusable)}: another address is tried then"
            again = RequeueAfter(_RETRY, _RECHECK, why)
        note = " ".join(state.problems.values())
        if demand.drained or standing.serves:
            return Done(note or ("drained" if demand.drained else "ensured"), again)
        return Unfinished(note, again)

    async def _publish(self, seen: Seen, serving: Demand | None, given: Given) -> Names:
        """Let the host name of a Service that serves lead to its addresses. Returns all its names."""
        before, found, call = servicenames.reported(seen.memo), Names(), seen.request.recorder.call
        name = _hostname(serving, given) if serving else ""
        if serving and name:
            records = servicenames.records(given.addresses)
            known = before.get(name)
            if known is None or known["records"] != records or seen.request.wish.changed:
                request = {"do": "publish", "name": name, "values": list(records.values())}
                args = (seen.ref, serving.uid, name, records)
                zone = await call("dns", request, self._doors.publish, *args, effect=True)
                known = {"zone": zone, "records": records} if zone else None
            if known:
                found[name] = known
        former = servicenames.former(before, name, given.addresses)
        await self._remove_names(seen.request, former.removed)
        return found | former.kept

    async def _remove_names(self, request: Request, names: Names) -> None:
        for name, found in names.items():
            asked = {"do": "delete", "name": name, "values": list(found["records"].values())}
            args = (found["zone"], name, list(found["records"]))
            await request.recorder.call("dns", asked, self._doors.unpublish, *args, effect=True)

    async def _report_waiting(self, seen: Seen, demand: Demand, note: str) -> Outcome:
        """Report why there is no load balancer yet. The status keeps its addresses."""
        standing = Standing(demand, {}, {}, waiting=True, backends=False, note=note)
        conditions = self._settings.conditions
        patch = servicestatus.waiting(seen.remembered, standing, seen.now, conditions=conditions)
        events = [eventmessages.ensuring(), *eventmessages.refused(demand.refusals)]
        if note and note not in {refusal.note for refusal in demand.refusals}:
            events.append(eventmessages.sync_failed("ensure", note))
        memo = {"waiting": note, **({"names": names} if (names := servicenames.reported(seen.memo)) else {})}
        await self._report(seen, patch, memo, [] if seen.memo.get("waiting") == note else events)
        return Unfinished(note)

    async def _report(
        self, seen: Seen, patch: dict[str, Any], memo: dict[str, Any], events: list[EventIntent]
    ) -> None:
        """Report, unless the last report says the same."""
        last, reports = seen.last, seen.request.reports
        same = last is None or last.patch == patch
        # The status of the object may be older than the last report.
        shown = same and servicestatus.shown(seen.object, patch)
        if last and last.memo == memo and (same or not events):
            if shown:
                return
            if same and not last.shown:  # removed by another client, or not yet written
                await reports.remind()
                return
        intent = StatusIntent(
            uid=seen.object.uid,
            patch=patch,
            events=tuple(events),
            version=seen.object.resource_version,
            shown=shown,
            memo=memo,
        )
        await reports.send(intent)

    # Cleanup.

    async def _clean_up(self, seen: Seen, ours: Collection[str] | None = None) -> Outcome:
        """Remove finalizer, status and addresses. If `ours` is given, its status may show those of others."""
        ref, uid, call = seen.ref, seen.object.uid, seen.request.recorder.call
        # Contract: the load balancer goes first, then the finalizer, then status and addresses.
        if await self._edge_state(seen.request) is not None:
            return Unfinished("waiting for the edge to release it")  # the edge requeues the Service
        had = await call("addresses", {"version": str(ref)}, self._doors.version, ref, uid)
        await self._remove_names(seen.request, servicenames.reported(seen.memo))
        patch: dict[str, Any] = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
        await call("patch", patch, self._doors.patch, ref, patch, effect=True)
        events = [eventmessages.deleting(), eventmessages.deleted()] if had else [eventmessages.deleted()]
        if seen.object.deleting:
            await call("addresses", {"release": str(ref)}, self._doors.release, ref, effect=True)
            # While finalizers of others keep it, it must not show an address that another Service may get.
            held = selection.held_by_others(seen.object)
            await self._report(
                seen, servicestatus.emptied(seen.object) if held else {}, {"gone": True}, events
            )
            return Done("deleted")
        until = (seen.now + timedelta(seconds=self._settings.grace)).timestamp()
        await call("addresses", {"keep": str(ref)}, self._doors.keep, ref, uid, until, effect=True)
        patch = servicestatus.emptied(seen.object)
        if ours is not None and not set(servicestatus.addresses(seen.object)) <= set(ours):
            del patch["loadBalancer"]
        await self._report(seen, patch, {"gone": True}, events)
        why = "its former addresses are kept for it until then"
        return Done("released", RequeueAfter(Wish(reason=Reason.GRACE_OVER), self._settings.grace + 1, why))

    async def _forget(self, request: Request, reported: StatusIntent | None) -> Outcome:
        """Clean up after a Service that is gone without our finalizer."""
        ref, call = request.ref, request.recorder.call
        if not await call("gone", str(ref), self._doors.is_gone, ref):
            return Unfinished("not on the bus yet")  # the mirror announces it
        return await self._release(request, reported, "gone")

    async def _release(self, request: Request, reported: StatusIntent | None, why: str) -> Outcome:
        """Give back what a Service has that nobody serves here any more."""
        ref, call = request.ref, request.recorder.call
        if await self._edge_state(request) is not None:
            return Unfinished("waiting for the edge to release it")
        if reported:
            await self._remove_names(request, servicenames.reported(reported.memo))
        await call("addresses", {"release": str(ref)}, self._doors.release, ref, effect=True)
        if reported and reported.patch:
            await request.reports.forget(reported.uid)
        return Ignored(why)


def _hostname(demand: Demand, given: Given) -> str:
    """The host name in its cloud; empty if it has none."""
    address = given.addresses.get("IPv4")
    return hostnames.hostname(demand.hostname, address) if demand.hostname and address else ""


def _address_request(seen: Seen, demand: Demand, version: str) -> AddressRequest:
    shown = servicestatus.addresses(seen.object)
    return AddressRequest(
        seen.ref,
        demand.uid,
        demand.families,
        requested=demand.requested,
        share=demand.share,
        ports=demand.places,
        # Its owner may write any address into the status: only reported ones count as its own.
        adopt=tuple(address for address in shown if address in seen.said),
        shown=tuple(address for address in shown if address not in seen.said),
        version=version,
        content=demand.content,
        range=demand.range,
    )


def _unusable(seen: Seen, demand: Demand, state: EdgeState | None) -> tuple[str, ...]:
    """The addresses to replace, because other processes hold its ports there.

    Requested addresses and those in its status stay: clients may use them.
    """
    if state is None or state.uid != demand.uid or len(state.occupied) >= MOST_OCCUPIED:
        return ()
    ports = set(demand.places)
    occupied = (address for address, places in state.occupied.items() if ports & set(places))
    kept = {*seen.addresses, *demand.requested}
    return tuple(address for address in occupied if address not in kept)


def _events(
    before: dict[str, Any], memo: dict[str, Any], demand: Demand, state: EdgeState
) -> list[EventIntent]:
    """The Events for a Service, given the last report."""
    refused = eventmessages.refused(demand.refusals)
    # Refusals do not change Envoy's configuration, and so not the digest.
    new_events = [event for event in refused if event.note not in before.get("refused", ())]
    configured = before.get("digest") != memo["digest"]
    moved = before.get("backends") != memo["backends"]
    if demand.drained:
        return [*new_events, eventmessages.drained()] if configured else new_events
    if moved and memo["problems"] and not configured:
        failed = eventmessages.update_failed(state.backends, fields.listed(state.problems.values()))
        return [*new_events, failed]
    if configured or before.get("problems") != memo["problems"]:
        by_reason: dict[str, list[str]] = {}
        for place, reason in state.problems.items():
            by_reason.setdefault(reason, []).append(place)
        return [
            eventmessages.ensuring(),
            *refused,
            *([] if state.backends else [eventmessages.unavailable(state.lacking)]),
            *(
                eventmessages.sync_failed("ensure", f"{', '.join(places)}: {reason}")
                for reason, places in by_reason.items()
            ),
            *([eventmessages.ensured()] if memo["serves"] else []),
        ]
    if moved:
        updated = eventmessages.updated() if state.backends else eventmessages.unavailable(state.lacking)
        return [*new_events, updated]
    return new_events
