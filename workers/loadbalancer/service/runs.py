"""One reconcile of a Service: finalizer, allocation, state of the edge, report; or cleanup."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from bus.messages import EventIntent, Reason, StatusIntent, Wish
from bus.outcomes import Done, Failed, Ignored, Outcome, RequeueAfter, Unfinished
from windowbox.errors import Missing, PermanentError
from windowbox.models.objects import Object
from windowbox.models.refs import ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.core import clock
from workers.core.reconcile import Request
from workers.core.recorder import Recorder
from workers.loadbalancer.edgestate import MOST_OCCUPIED, EdgeState
from workers.loadbalancer.ipam.results import REBUILDING, REFUSED, AddressRequest
from workers.loadbalancer.service import eventmessages, statuses
from workers.loadbalancer.service.addresses import Addresses, Given
from workers.loadbalancer.service.statuses import Standing
from workers.loadbalancer.service.world import ServiceWorld
from workers.loadbalancer.spec import demands, fields, listeners, selection
from workers.loadbalancer.spec.demands import Demand

_RETRY = Wish(reason=Reason.RETRY).insisting()
_REBUILDING = 20.0
"""Seconds after which a report says that allocations are still being rebuilt."""
_LONGEST = 300.0
"""The longest backoff."""
_RECHECK = 60.0
"""Seconds until a Service without an address is reconciled again, if no event requeues it."""


@dataclass(frozen=True)
class Seen:
    """A Service as this run sees it, and the last report about it."""

    request: Request
    object: Object
    reported: StatusIntent | None
    now: datetime

    @property
    def ref(self) -> ObjectRef:
        return self.request.ref

    @property
    def remembered(self) -> Object:
        """The Service with the last reported status, even if that is not written yet."""
        last = self.reported.patch if self.reported and self.memo else {}
        return statuses.remembered(self.object, last)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in its status, or in the last report if that is not written yet."""
        return statuses.addresses(self.object) or self.said

    @property
    def said(self) -> tuple[str, ...]:
        """The reported addresses; its owner may have written others into the status."""
        return statuses.addresses(
            Object({"status": self.reported.patch if self.reported and self.memo else {}})
        )

    @property
    def memo(self) -> dict[str, Any]:
        """The state that the last run of this Service has left for this one."""
        return self.reported.memo if self.reported and self.reported.uid == self.object.uid else {}


class ServiceRuns:
    """Reconciles Services. Idempotent; may be cancelled at any point."""

    def __init__(self, world: ServiceWorld, addresses: Addresses, settings: LoadBalancerSettings) -> None:
        self._world = world
        self._addresses = addresses
        self._settings = settings

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> dict[str, Any]:
        return {}  # the Event says it

    async def reconcile(self, request: Request) -> Outcome:
        ref, wish, recorder = request.ref, request.wish, request.recorder
        reported = await request.reports.last()
        found = None if await self._world.cluster_left(ref, recorder) else await recorder.read(ref)
        if found is None:
            return await self._forget(request, reported, recorder)
        seen = Seen(request, found, reported, await clock.now(recorder))
        try:
            if selection.needs_cleanup(found):
                return await self._clean_up(seen, recorder)
            if self._is_ours(found):
                return await self._ensure(seen, wish, recorder)
            if (left := await self._addresses.leftovers(ref, found.uid, recorder)) is not None:
                # It was a load balancer until now: a run was cut off, or two changes came as one.
                return await self._clean_up(seen, recorder, left)
        except Missing:
            return Ignored("gone")  # its deletion comes over the bus
        except PermanentError as error:
            failed = eventmessages.sync_failed("ensure" if self._is_ours(found) else "delete", str(error))
            await self._report(seen, {}, {**seen.memo, "failed": failed.note}, [failed], recorder)
            return Failed(str(error), request.retry(error, insist=True))
        await self._addresses.release_expired(ref, seen.now, recorder)
        if reported and seen.memo.get("gone") and not wish.changed:
            # Its last status is written, and no event tells when such a Service is deleted.
            await request.reports.forget(reported.uid)
        return Ignored("not ours")

    def _is_ours(self, service: Object) -> bool:
        return selection.is_ours(service, self._settings.classes) and not service.deleting

    # Services that ask for a load balancer.

    async def _ensure(self, seen: Seen, wish: Wish, recorder: Recorder) -> Outcome:
        demand = demands.demand_in(seen.ref.cluster, seen.object, self._settings)
        if not demand.ports:
            await self._addresses.step_back(seen.ref, recorder)
            return await self._report_waiting(
                seen, demand, demand.refusals[0].note if demand.refusals else "", recorder
            )
        version = await self._ensure_finalizer(seen, recorder)
        await self._addresses.release_others(seen.ref, demand.uid, recorder)
        shown = statuses.addresses(seen.object)
        request = AddressRequest(
            seen.ref,
            demand.uid,
            demand.families,
            requested=demand.requested,
            share=demand.share,
            ports=demand.places,
            adopt=tuple(address for address in shown if address in seen.said),
            shown=tuple(address for address in shown if address not in seen.said),
            version=version,
            content=demand.content,
        )
        answer = await self._addresses.allocate(request, recorder)
        if answer.note:
            if answer.reason == REBUILDING and (seen.addresses or wish.reason != Reason.RETRY):
                # The rebuilt store requeues the Service: only a lasting state is reported.
                return Unfinished(answer.note, RequeueAfter(_RETRY, _REBUILDING))
            await self._report_waiting(seen, demand, answer.note, recorder)
            recheck = _LONGEST if answer.reason in REFUSED else _RECHECK
            return Unfinished(answer.note, RequeueAfter(_RETRY, recheck))
        state = await self._world.edge(seen.ref, recorder)
        avoid = _unusable(seen, demand, state)
        if not {*avoid}.isdisjoint(answer.addresses.values()):
            answer = await self._addresses.allocate(replace(request, avoid=avoid), recorder)
        digest = listeners.digest(demand.uid, listeners.listeners(demand, answer.addresses))
        if state is None or state.uid != demand.uid or state.digest != digest:
            return await self._await_edge(seen, demand, wish, recorder)
        return await self._report_state(seen, demand, answer, state, recorder)

    async def _ensure_finalizer(self, seen: Seen, recorder: Recorder) -> str:
        """Add our finalizer before an address is allocated. Returns the resource version that has it."""
        held = await self._addresses.version(seen.ref, seen.object.uid, recorder)
        if selection.has_finalizer(seen.object):
            return held or seen.object.resource_version
        if held and int(held) >= int(seen.object.resource_version or 0):
            return held  # the mirror does not show the finalizer yet
        return await self._world.add_finalizer(seen.ref, recorder)

    async def _await_edge(self, seen: Seen, demand: Demand, wish: Wish, recorder: Recorder) -> Outcome:
        if not wish.overdue:
            return Unfinished("waiting for the edge")  # which requeues the Service
        note = "no edge has taken this load balancer: see `windowbox status` for workers and their edge"
        return await self._report_waiting(seen, demand, note, recorder)

    async def _report_state(
        self, seen: Seen, demand: Demand, answer: Given, state: EdgeState, recorder: Recorder
    ) -> Outcome:
        standing = Standing(
            demand,
            answer.addresses,
            state.problems,
            bool(state.problems),
            bool(state.backends),
            state.lacking,
            state.unreached,
        )
        # A Service that was drained before it served shows no address yet.
        status = statuses.waiting if demand.drained and not seen.addresses else statuses.patch
        patch = status(seen.remembered, standing, seen.now, conditions=self._settings.conditions)
        refused = [event.note for event in eventmessages.refused(demand.refusals)]
        memo = {
            "digest": state.digest,
            "backends": list(state.backends),
            "problems": dict(state.problems),
            "serves": standing.serves,
            **({"refused": refused} if refused else {}),
            **({"nodes refused": list(state.refused_nodes)} if state.refused_nodes else {}),
            **({"notice": answer.notice} if answer.notice else {}),
        }
        events = _events(seen.memo, memo, demand, state)
        if state.refused_nodes and seen.memo.get("nodes refused") != memo["nodes refused"]:
            events.append(eventmessages.node_address_refused(state.refused_nodes))
        if answer.notice and seen.memo.get("notice") != answer.notice:
            events.append(eventmessages.address_not_shared(answer.notice))
        await self._report(seen, patch, memo, events, recorder)
        again = None
        if unusable := _unusable(seen, demand, state):
            # No event tells that an address with free ports was released.
            why = f"other processes hold its ports at {', '.join(unusable)}: another address is tried then"
            again = RequeueAfter(_RETRY, _RECHECK, why)
        note = " ".join(state.problems.values())
        if demand.drained or standing.serves:
            return Done(note or ("drained" if demand.drained else "ensured"), again)
        return Unfinished(note, again)

    async def _report_waiting(self, seen: Seen, demand: Demand, note: str, recorder: Recorder) -> Outcome:
        """Report why there is no load balancer yet. The status keeps its addresses."""
        standing = Standing(demand, {}, {}, waiting=True, backends=False, note=note)
        patch = statuses.waiting(seen.remembered, standing, seen.now, conditions=self._settings.conditions)
        events = [eventmessages.ensuring(), *eventmessages.refused(demand.refusals)]
        if note and note not in {refusal.note for refusal in demand.refusals}:
            events.append(eventmessages.sync_failed("ensure", note))
        if seen.memo.get("waiting") == note:
            events = []
        await self._report(seen, patch, {"waiting": note}, events, recorder)
        return Unfinished(note)

    # Cleanup.

    async def _clean_up(self, seen: Seen, recorder: Recorder, ours: Collection[str] | None = None) -> Outcome:
        """Remove finalizer, status and addresses. If `ours` is given, its status may show those of others."""
        if await self._world.edge(seen.ref, recorder) is not None:
            return Unfinished("waiting for the edge to release it")  # the edge requeues the Service
        had = await self._addresses.version(seen.ref, seen.object.uid, recorder)
        await self._world.remove_finalizer(seen.ref, recorder)
        events = [eventmessages.deleting(), eventmessages.deleted()] if had else [eventmessages.deleted()]
        if seen.object.deleting:
            await self._addresses.release(seen.ref, recorder)
            # While finalizers of others keep it, it must not show an address that another Service may get.
            patch = statuses.emptied(seen.object) if selection.held_by_others(seen.object) else {}
            await self._report(seen, patch, {"gone": True}, events, recorder)
            return Done("deleted")
        until = seen.now + timedelta(seconds=self._settings.grace)
        await self._addresses.keep(seen.ref, seen.object.uid, until, recorder)
        patch = statuses.emptied(seen.object)
        if ours is not None and not set(statuses.addresses(seen.object)) <= set(ours):
            del patch["loadBalancer"]
        await self._report(seen, patch, {"gone": True}, events, recorder)
        why = "its former addresses are kept for it until then"
        again = RequeueAfter(Wish(reason=Reason.GRACE_OVER), self._settings.grace + 1, why)
        return Done("released", again)

    async def _forget(self, request: Request, reported: StatusIntent | None, recorder: Recorder) -> Outcome:
        ref = request.ref
        if not await self._world.gone(ref, recorder):
            return Unfinished("not on the bus yet")  # the mirror announces it
        if await self._world.edge(ref, recorder) is not None:
            return Unfinished("waiting for the edge to release it")
        await self._addresses.release(ref, recorder)
        if reported and reported.patch:
            await request.reports.forget(reported.uid)
        return Ignored("gone")

    async def _report(
        self,
        seen: Seen,
        patch: dict[str, Any],
        memo: dict[str, Any],
        events: list[EventIntent],
        recorder: Recorder,
    ) -> None:
        """Report, unless the last report says the same."""
        before = seen.reported if seen.memo else None
        # The status may be older than the last report.
        newest = before is None or before.patch == patch
        shown = newest and statuses.shown(seen.object, patch)
        if before and before.memo == memo and (before.patch == patch or not events):
            if shown:
                return
            if before.patch == patch and not before.shown:  # removed by another client, or not yet written
                await seen.request.reports.remind()
                return
        intent = StatusIntent(
            uid=seen.object.uid,
            patch=patch,
            events=tuple(events),
            version=seen.object.resource_version,
            shown=shown,
            memo=memo,
        )
        await seen.request.reports.send(intent)


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
    # Refusals do not change Envoy's configuration.
    refused = eventmessages.refused(demand.refusals)
    new_events = [event for event in refused if event.note not in before.get("refused", ())]
    if demand.drained:
        return (
            [*new_events, eventmessages.drained()] if before.get("digest") != memo["digest"] else new_events
        )
    others = before.get("backends") != memo["backends"]
    if others and memo["problems"] and before.get("digest") == memo["digest"]:
        return [
            *new_events,
            eventmessages.update_failed(state.backends, fields.listed(state.problems.values())),
        ]
    if before.get("digest") != memo["digest"] or before.get("problems") != memo["problems"]:
        return [
            eventmessages.ensuring(),
            *_obstacles(demand, state),
            *([eventmessages.ensured()] if memo["serves"] else []),
        ]
    if others:
        return [
            *new_events,
            eventmessages.updated() if state.backends else eventmessages.unavailable(state.lacking),
        ]
    return new_events


def _obstacles(demand: Demand, state: EdgeState) -> list[EventIntent]:
    new_events = eventmessages.refused(demand.refusals)
    if not state.backends:
        new_events.append(eventmessages.unavailable(state.lacking))
    by_reason: dict[str, list[str]] = {}
    for place, reason in state.problems.items():
        by_reason.setdefault(reason, []).append(place)
    new_events += [
        eventmessages.sync_failed("ensure", f"{', '.join(p)}: {reason}") for reason, p in by_reason.items()
    ]
    return new_events
