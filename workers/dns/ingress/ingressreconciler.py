"""One run of an Ingress: compare its DNSRecords with the desired ones, and write the difference."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from bus.clusters.clusters import Clusters
from bus.messages import EventIntent, Reason, Wish
from bus.outcomes import Done, Failed, Ignored, Outcome, RequeueAfter, Unfinished
from windowbox.errors import PermanentError, TransientError
from windowbox.kinds import RESOURCES
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, NAMESPACES, ObjectRef
from workers.core import clock
from workers.core.conflictbackoff import ConflictBackoff
from workers.core.lifecycle.kinds import Run
from workers.core.lifecycle.world import World
from workers.core.owned.manifests import Manifest
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.core.reconcile import Request
from workers.core.recorder import Recorder
from workers.dns.ingress import ingressrecords
from workers.dns.ingress.ingressmapping import IngressViews, is_shoot
from workers.dns.ingress.ingressrecords import Action, Await, Correct, LeaveAlone, Make, Remove

_REQUEUE_AFTER = 30.0
"""Seconds after which a record that has to go is looked at, should nobody have told that it is gone."""


@dataclass(frozen=True)
class IngressState:
    """An Ingress as this run sees it. One that is gone has no more than its name."""

    request: Request
    object: Object
    target: TargetCluster

    @property
    def ref(self) -> ObjectRef:
        return self.request.ref


class IngressReconciler:
    """What becomes of Ingresses. Safe to repeat, and to be stopped anywhere."""

    def __init__(
        self, clusters: Clusters, world: World, targets: TargetClusters, views: IngressViews
    ) -> None:
        self._clusters = clusters
        self._world = world
        self._targets = targets
        self._views = views
        self._conflicts = ConflictBackoff()

    async def reconcile(self, request: Request) -> Outcome:
        ref, recorder = request.ref, request.recorder
        found = await recorder.read(ref)
        gone = Object({"metadata": {"namespace": ref.namespace, "name": ref.name}})
        target = self._targets.own_cluster(Run(ref, found or gone, None, recorder))
        state = IngressState(request, found or gone, target)
        try:
            if found is None:
                return await self._clean_up(state, recorder)
            return await self._ensure(state, request.wish, recorder)
        except TransientError as error:
            return Unfinished(str(error), request.retry_same(error))
        except PermanentError as error:
            await self._report_event(state, failed(str(error)), request.wish, recorder)
            return Failed(str(error), request.retry(error))

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> dict[str, Any]:
        return {}  # the Event says it

    async def _clean_up(self, state: IngressState, recorder: Recorder) -> Outcome:
        """Remove the records of an Ingress that is gone, for where there is no garbage collection."""
        records = await self._records(state, (), recorder)
        if not records:
            return Ignored("gone")
        if await self._world.live(state.ref, recorder) is not None:
            return Unfinished("not on the bus yet")  # whoever mirrors the cluster will bring it
        await self._apply_all(ingressrecords.plan(state.object, (), records), state, recorder)
        return Done("removed")

    async def _ensure(self, state: IngressState, wish: Wish, recorder: Recorder) -> Outcome:
        if not await self._in_shoot_namespace(state.ref, recorder):
            return Ignored("not ours")
        ingress = state.object
        records = ingressrecords.records(ingress)
        # Who has no address for a moment will have one again, and clients go on trying until then.
        kept = () if ingress.deleting or ingressrecords.targets(ingress) else ingressrecords.hosts(ingress)
        actions = ingressrecords.plan(ingress, records, await self._records(state, records, recorder), kept)
        backed_off = await self._repair(actions, state, wish, recorder)
        if refused := [one.name for one in actions if isinstance(one, LeaveAlone)]:
            await self._report_event(state, in_the_way(refused), wish, recorder)
        if (named := len(ingressrecords.named_hosts(ingress))) > ingressrecords.MAX_HOSTS and not wish.drift:
            await self._report_event(state, too_many(named), wish, recorder)
        return _backed_off(backed_off) if backed_off else _outcome(actions)

    async def _repair(
        self, actions: Sequence[Action], state: IngressState, wish: Wish, recorder: Recorder
    ) -> Mapping[str, float]:
        """Do what is not undone over and over. Returns what is, with the seconds to leave it alone."""
        # A record is counted as long as its Ingress asks for the same: whoever changes that never waits.
        keys = {
            name: _conflict_key(state, name) for action in actions if (name := ingressrecords.written(action))
        }
        if not wish.drift or wish.changed or not keys:
            await self._apply_all(actions, state, recorder)
            return {}
        backed_off = await self._conflicts.noted_each(keys, recorder)
        await self._apply_all(
            [one for one in actions if ingressrecords.written(one) not in backed_off], state, recorder
        )
        for name in keys.keys() - backed_off.keys():
            self._conflicts.repaired(keys[name])
        return backed_off

    async def _in_shoot_namespace(self, ref: ObjectRef, recorder: Recorder) -> bool:
        at = ObjectRef(ref.cluster, NAMESPACES.id, "", ref.namespace)
        namespace = await recorder.read(at) or await self._world.live(at, recorder)
        return namespace is not None and is_shoot(namespace)

    async def _records(
        self, state: IngressState, records: Sequence[Manifest], recorder: Recorder
    ) -> dict[str, Object]:
        """The records that were made for the Ingress, and those that bear a name which one is to have."""

        async def act() -> list[str]:
            return [ref.name for ref in await self._views.records(state.ref)]

        made = await recorder.call("records", None, act)
        names = dict.fromkeys([*made, *(record["metadata"]["name"] for record in records)])
        found = {name: await state.target.cached(DNSRECORDS, state.ref.namespace, name) for name in names}
        return {name: record for name, record in found.items() if record is not None}

    async def _apply_all(self, actions: Sequence[Action], state: IngressState, recorder: Recorder) -> None:
        """One after the other, so that whoever does it again does it in the same order. What fails is told
        at the end: one host must not keep others from resolving."""
        errors = []
        for action in actions:
            try:
                await self._apply(action, state, recorder)
            except (TransientError, PermanentError) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def _apply(self, action: Action, state: IngressState, recorder: Recorder) -> None:
        match action:
            case Make(record):
                await self._make(record, state, recorder)
            case Correct(record):
                await state.target.apply(
                    DNSRECORDS, ingressrecords.with_request(record, await clock.now(recorder))
                )
            case Remove(record):
                await self._remove(record, state, recorder)
            case Await() | LeaveAlone():
                pass
            case _:
                assert_never(action)

    async def _make(self, record: Manifest, state: IngressState, recorder: Recorder) -> None:
        # To apply would be to take over what somebody else has put there, unseen by the bus until now.
        name = record["metadata"]["name"]
        found = await state.target.live(DNSRECORDS, state.ref.namespace, name)
        if found is None:
            await state.target.apply(DNSRECORDS, record)
            return
        await self._apply_all(ingressrecords.plan(state.object, [record], {name: found}), state, recorder)

    async def _remove(self, record: Object, state: IngressState, recorder: Recorder) -> None:
        if record.annotations.get(ingressrecords.CONFIRMATION) != "true":
            await self._confirm(record, state.ref, recorder)
        await state.target.remove(DNSRECORDS, state.ref.namespace, record.name)

    async def _confirm(self, record: Object, ref: ObjectRef, recorder: Recorder) -> None:
        patch = {"metadata": {"uid": record.uid, "annotations": {ingressrecords.CONFIRMATION: "true"}}}

        async def act() -> None:
            kube = await self._clusters.get(ref.cluster)
            await kube.merge(RESOURCES[DNSRECORDS.id], ref.namespace, record.name, patch)

        await recorder.call("patch", {"object": record.name, **patch}, act, effect=True)

    async def _report_event(
        self, state: IngressState, event: EventIntent, wish: Wish, recorder: Recorder
    ) -> None:
        """Tell it whoever looks at the Ingress, but not again with every attempt."""
        if wish.reported or not state.object.uid:
            return
        await state.request.reports.last()
        await state.request.reports.send_event(state.object.uid, event)


def failed(reason: str) -> EventIntent:
    return EventIntent(type="Warning", reason="DNSRecordsFailed", note=f"Error ensuring DNSRecords: {reason}")


def in_the_way(names: Sequence[str]) -> EventIntent:
    note = (
        f"DNSRecord {', '.join(names)} was not made for this Ingress and is left alone: "
        "delete or rename it to have the host resolve"
    )
    return EventIntent(type="Warning", reason="DNSRecordInTheWay", note=note)


def too_many(named: int) -> EventIntent:
    note = (
        f"spec.rules names {named} hosts, of which the first {ingressrecords.MAX_HOSTS} have DNSRecords: "
        "move others to a second Ingress"
    )
    return EventIntent(type="Warning", reason="TooManyHosts", note=note)


def _backed_off(backed_off: Mapping[str, float]) -> Outcome:
    note = (
        f"somebody changes DNSRecord {', '.join(backed_off)} back again and again; "
        "two programs want it to be different"
    )
    return Unfinished(note, RequeueAfter(Wish(reason=Reason.DRIFT), min(backed_off.values())))


def _conflict_key(state: IngressState, record: str) -> Hashable:
    ingress = state.object
    return state.ref, ingress.uid, ingress.generation, tuple(ingressrecords.targets(ingress)), record


def _outcome(actions: Sequence[Action]) -> Outcome:
    if waiting := [one.name for one in actions if isinstance(one, Await)]:
        again = RequeueAfter(Wish(reason=Reason.RETRY), _REQUEUE_AFTER)
        return Unfinished(f"waiting for the former DNSRecord {', '.join(waiting)} to be gone", again)
    if refused := [one.name for one in actions if isinstance(one, LeaveAlone)]:
        return Unfinished(", ".join(refused))
    return Done("ensured") if actions else Ignored()
