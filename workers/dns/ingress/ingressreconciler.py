"""Reconciles an Ingress: compares its DNSRecords with the desired ones, and writes the difference."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from bus.clusters.clusters import Clusters
from bus.messages import EventIntent, Reason, Wish
from bus.outcomes import Done, Ignored, Outcome, RequeueAfter, Unfinished
from windowbox.errors import PermanentError, TransientError
from windowbox.kinds import RESOURCES
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, NAMESPACES, ObjectRef
from workers.core import clock
from workers.core.conflictbackoff import ConflictBackoff
from workers.core.lifecycle.actuators import Run
from workers.core.lifecycle.world import World
from workers.core.owned.manifests import Manifest
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.core.reconcile import Request
from workers.core.recorder import Recorder
from workers.dns.ingress import ingressrecords
from workers.dns.ingress.ingressmapping import IngressViews, is_shoot
from workers.dns.ingress.ingressrecords import Action, Await, Correct, LeaveAlone, Make, Remove

_REQUEUE_AFTER = 30.0
"""Seconds until a former record is checked, in case the event of its deletion is missed."""


@dataclass(frozen=True)
class IngressState:
    """An Ingress as one run sees it. Only the name of a deleted Ingress is known."""

    request: Request
    object: Object
    target: TargetCluster

    @property
    def ref(self) -> ObjectRef:
        return self.request.ref

    @property
    def recorder(self) -> Recorder:
        return self.request.recorder


class IngressReconciler:
    """Creates, corrects and removes the DNSRecords of Ingresses in Shoot namespaces."""

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
        ingress = found or Object({"metadata": {"namespace": ref.namespace, "name": ref.name}})
        state = IngressState(request, ingress, self._targets.own_cluster(Run(ref, ingress, None, recorder)))
        try:
            return await (self._ensure(state) if found else self._clean_up(state))
        except TransientError as error:
            # The same wish: a check for drift stays one, and Events that are still to be reported will be.
            return Unfinished(str(error), request.retry_same(error))
        except PermanentError as error:
            await self._report_event(state, failed(str(error)))
            raise

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> dict[str, Any]:
        return {}  # the Event says it

    async def _clean_up(self, state: IngressState) -> Outcome:
        """Remove the records of an Ingress that is gone, for clusters without garbage collection."""
        records = await self._records(state, ())
        if not records:
            return Ignored("gone")
        if await self._world.live(state.ref, state.recorder) is not None:
            return Unfinished("not on the bus yet")  # its announcement requeues it
        await self._apply_all(ingressrecords.plan(state.object, (), records), state)
        return Done("removed")

    async def _ensure(self, state: IngressState) -> Outcome:
        ref, ingress, wish = state.ref, state.object, state.request.wish
        at = ObjectRef(ref.cluster, NAMESPACES.id, "", ref.namespace)
        namespace = await state.recorder.read(at) or await self._world.live(at, state.recorder)
        if namespace is None or not is_shoot(namespace):
            return Ignored("not ours")
        records, targets = ingressrecords.records(ingress), ingressrecords.targets(ingress)
        # An Ingress without an address will most likely have one again: clients keep trying until then.
        kept = () if ingress.deleting or targets else ingressrecords.hosts(ingress)
        actions = ingressrecords.plan(ingress, records, await self._records(state, records), kept)
        backed_off = await self._repair(actions, state)
        refused = [one.name for one in actions if isinstance(one, LeaveAlone)]
        if refused:
            await self._report_event(state, in_the_way(refused))
        named = len(ingressrecords.named_hosts(ingress))
        if named > ingressrecords.MAX_HOSTS and not wish.drift:
            await self._report_event(state, too_many(named))
        if backed_off:
            note = (
                f"another program keeps changing DNSRecord {', '.join(backed_off)} back: "
                "two programs want different content"
            )
            return Unfinished(note, RequeueAfter(Wish(reason=Reason.DRIFT), min(backed_off.values())))
        if waiting := [one.name for one in actions if isinstance(one, Await)]:
            again = RequeueAfter(Wish(reason=Reason.RETRY), _REQUEUE_AFTER)
            return Unfinished(f"waiting for the former DNSRecord {', '.join(waiting)} to be gone", again)
        if refused:
            return Unfinished(", ".join(refused))
        return Done("ensured") if actions else Ignored()

    async def _repair(self, actions: Sequence[Action], state: IngressState) -> Mapping[str, float]:
        """Apply the actions, except for records in backoff. Returns those, with the seconds that are left."""
        wish, ingress = state.request.wish, state.object
        # The key holds the Ingress's generation and targets: a client that changes them never waits.
        version = (state.ref, ingress.uid, ingress.generation, tuple(ingressrecords.targets(ingress)))
        written = [name for action in actions if (name := ingressrecords.written(action))]
        keys: dict[str, Hashable] = {name: (*version, name) for name in written}
        if not wish.drift or wish.changed or not keys:
            await self._apply_all(actions, state)
            return {}
        backed_off = await self._conflicts.noted_each(keys, state.recorder)
        await self._apply_all(
            [one for one in actions if ingressrecords.written(one) not in backed_off], state
        )
        for name in keys.keys() - backed_off.keys():
            self._conflicts.repaired(keys[name])
        return backed_off

    async def _records(self, state: IngressState, records: Sequence[Manifest]) -> dict[str, Object]:
        """The records created for the Ingress, and those that bear the name of a desired one."""

        async def made_for_ingress() -> list[str]:
            return [ref.name for ref in await self._views.records(state.ref)]

        made = await state.recorder.call("records", None, made_for_ingress)
        names = dict.fromkeys([*made, *(record["metadata"]["name"] for record in records)])
        found = {name: await state.target.cached(DNSRECORDS, state.ref.namespace, name) for name in names}
        return {name: record for name, record in found.items() if record is not None}

    async def _apply_all(self, actions: Sequence[Action], state: IngressState) -> None:
        """Apply all in order, and raise the first error at the end: one host must not block the others."""
        errors = []
        for action in actions:
            try:
                await self._apply(action, state)
            except (TransientError, PermanentError) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def _apply(self, action: Action, state: IngressState) -> None:
        target, namespace = state.target, state.ref.namespace
        match action:
            case Make(record):
                # The bus may not know a record of this name yet, and to apply would take it over.
                name = record["metadata"]["name"]
                found = await target.live(DNSRECORDS, namespace, name)
                if found is None:
                    await target.apply(DNSRECORDS, record)
                else:
                    await self._apply_all(ingressrecords.plan(state.object, [record], {name: found}), state)
            case Correct(record):
                now = await clock.now(state.recorder)
                await target.apply(DNSRECORDS, ingressrecords.with_request(record, now))
            case Remove(old):
                if old.annotations.get(ingressrecords.CONFIRMATION) != "true":
                    # Without this annotation, Gardener's admission refuses the deletion.
                    annotations = {ingressrecords.CONFIRMATION: "true"}
                    patch = {"metadata": {"uid": old.uid, "annotations": annotations}}

                    async def annotate() -> None:
                        kube = await self._clusters.get(state.ref.cluster)
                        await kube.merge(RESOURCES[DNSRECORDS.id], namespace, old.name, patch)

                    await state.recorder.call("patch", {"object": old.name, **patch}, annotate, effect=True)
                await target.remove(DNSRECORDS, namespace, old.name)
            case Await() | LeaveAlone():
                pass
            case _:
                assert_never(action)

    async def _report_event(self, state: IngressState, event: EventIntent) -> None:
        """Report an Event on the Ingress, once and not with every retry."""
        if state.request.wish.reported or not state.object.uid:
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
