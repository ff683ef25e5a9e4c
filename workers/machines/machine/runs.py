"""The reconciler of the pool `machine`: Machines, finalizers of classes and Secrets, orphaned Pods."""

from __future__ import annotations

from dataclasses import dataclass

from bus.messages import EventIntent
from bus.outcomes import Done, Failed, Ignored, Outcome, Unfinished
from windowbox.errors import Conflict, NotJoined, PermanentError, TransientError, Waiting, WindowboxError
from windowbox.models import machinekeys
from windowbox.models.extensions import spelled
from windowbox.models.machines import OperationState, OperationType, Phase
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, NODES, PODS, SECRETS, ObjectRef
from windowbox.settings.kindsettings import MachineSettings
from workers.core import clock
from workers.core.owned.targets import TargetClusters
from workers.core.reconcile import Request
from workers.core.recorder import Recorder
from workers.machines.machine import deletion, errors, names, reasons, specs, statuses
from workers.machines.machine.creation import Creation
from workers.machines.machine.deletion import Deletion
from workers.machines.machine.finalizers import Finalizers
from workers.machines.machine.joining import Joining, tell_reason
from workers.machines.machine.orphans import Orphans, are_leaving, pods_of
from workers.machines.machine.phases import Change
from workers.machines.machine.pods import MachinePods
from workers.machines.machine.providerclusters import ProviderClusters
from workers.machines.machine.run import MachineRun, begun
from workers.machines.machine.shoots import Shoots
from workers.machines.machine.statuses import Patch
from workers.machines.machine.views import MachineViews

_TO_BE_MADE = (Phase.NEW, Phase.CRASH_LOOP_BACK_OFF)
_UNSEEN = 10.0
"""Seconds after which a Pod that the bus does not know is created once more."""


@dataclass(frozen=True)
class MachineRuns:
    """Reconciles Machines. Idempotent; may be cancelled at any point."""

    targets: TargetClusters
    shoots: Shoots
    views: MachineViews
    settings: MachineSettings
    providers: ProviderClusters

    async def reconcile(self, request: Request) -> Outcome:
        ref, recorder = request.ref, request.recorder
        match ref.kind:
            case MACHINE_CLASSES.id:
                return await self._finalizers.of_class(ref, request.wish, recorder)
            case SECRETS.id:
                return await self._finalizers.of_secret(ref, request.wish, recorder)
            case PODS.id:
                return await Orphans(self.targets, self.views, self.settings).run(ref, recorder)
            case NODES.id:
                return await Orphans(self.targets, self.views, self.settings).of_node(ref, recorder)
            case _:
                return await self._machine(request)

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> Patch | None:
        if request.ref.kind != MACHINES.id:
            return None
        at = spelled(await clock.now(request.recorder))
        words = {"description": event.note, "state": OperationState.FAILED, "lastUpdateTime": at}
        return {"lastOperation": {**found.last_operation, **words}}

    @property
    def _finalizers(self) -> Finalizers:
        return Finalizers(self.targets, self.views)

    @property
    def _creation(self) -> Creation:
        return Creation(self.targets, self.shoots, self.settings, self.providers)

    @property
    def _pods(self) -> MachinePods:
        return MachinePods(self.targets, self.views, self._creation, self.providers)

    async def _machine(self, request: Request) -> Outcome:
        ref, recorder = request.ref, request.recorder
        found = await recorder.read(ref)
        if found is None:
            return await self._gone(ref, recorder)
        run = await begun(request, found)
        if found.deleting:
            own = self.targets.own_cluster(run.run)
            held = machinekeys.FINALIZER in found.finalizers
            if held and run.phase != Phase.TERMINATING and await are_leaving(own, ref.namespace):
                # Control plane migration: the object is deleted, its Pod stays for another seed.
                await deletion.let_go(run, own)
                return Done("its Worker is being migrated: the machine stays")
            return await self._end(run)
        try:
            return await self._make(run)
        except (Conflict, Waiting):
            raise
        except NotJoined as error:
            if run.phase in _TO_BE_MADE:
                await tell_reason(run, reasons.Reason("ShootNotJoined", str(error)))
            raise
        except (TransientError, PermanentError) as error:
            return await self._failed(run, error)

    async def _gone(self, ref: ObjectRef, recorder: Recorder) -> Outcome:
        """Remove the Pods of a deleted Machine: there are some only if a person removed its finalizer."""
        left: Outcome = Ignored("gone")
        for pod, _ in await pods_of(self.views, ref, recorder):
            outcome = await Orphans(self.targets, self.views, self.settings).run(pod, recorder)
            left = outcome if left.requeue is None else left
        return left

    async def _make(self, run: MachineRun) -> Outcome:
        if run.phase in _TO_BE_MADE:
            await self._creation.attempt(run)
            await run.report(statuses.pending(statuses.CREATING, run.now))
        shoot = await self.shoots.target(run.ref, run.recorder)
        pod = await self._pods.seen(run) if run.phase == Phase.PENDING else None
        if run.phase == Phase.PENDING and (again := await self._replaced(run, pod)):
            return again
        if shoot is None:
            return await self._available(run, pod)
        return await Joining(self.targets, self.settings, self.views, self._pods).run(run, shoot, pod)

    async def _replaced(self, run: MachineRun, pod: Object | None) -> Outcome | None:
        """Replace a missing or ended Pod of a machine that has not joined. The outcome waits for it."""
        if pod is not None and reasons.has_ended(pod) and not pod.deleting:
            await tell_reason(run, reasons.reason(reasons.Facts(pod)))
            plan = await self._creation.plan(run)
            async with self.targets.provider(run.run, *plan.credentials) as target:
                await target.remove(PODS, pod.namespace, pod.name, grace=0, uid=pod.uid)
            raise Waiting("waiting for the Pod that has ended to be gone")
        if pod is not None and not pod.deleting:
            return None
        for_seconds = (run.now - statuses.state(run.machine).since).total_seconds()
        if pod is None and for_seconds > _UNSEEN:
            await self._creation.attempt(run)
        waiting = Waiting("waiting for the Pod to be seen", retry_after=max(_UNSEEN - for_seconds, 0.0) + 1.0)
        deadline = specs.timeouts(run.machine, self.settings).creation
        if (run.now - statuses.created(run.machine)).total_seconds() > deadline:
            return None  # the creation timeout is over
        raise waiting

    async def _available(self, run: MachineRun, pod: Object | None) -> Outcome:
        """A machine that joins no Shoot is Available when its Pod runs."""
        if run.phase != Phase.PENDING or pod is None:
            return Ignored()
        if pod.status.get("phase") != "Running":
            await tell_reason(run, reasons.reason(reasons.Facts(pod)))
            return Unfinished("waiting for the Pod to run")
        change = Change(Phase.AVAILABLE, OperationType.CREATE, OperationState.SUCCESSFUL, statuses.CREATED)
        addresses = statuses.addresses(pod, names.pod(run.ref.name))
        await run.report(statuses.changed(change, run.now) | {"addresses": addresses})
        return Done()

    async def _end(self, run: MachineRun) -> Outcome:
        try:
            return await Deletion(self.targets, self.shoots, self._creation, self.settings).run(run)
        except (Conflict, Waiting):
            raise
        except (TransientError, PermanentError) as error:
            if run.wish.attempt > 0 or isinstance(error, PermanentError):
                await deletion.tell_failure(run, error, _deletion_text(error))
            return Failed(str(error), run.request.retry(error))

    async def _failed(self, run: MachineRun, error: TransientError | PermanentError) -> Outcome:
        """Report why the machine cannot be created. An existing one keeps its phase."""
        if run.phase in _TO_BE_MADE:
            timeout = specs.timeouts(run.machine, self.settings).creation
            late = (run.now - statuses.created(run.machine)).total_seconds() > timeout
            change = Change(
                Phase.FAILED if late else Phase.CRASH_LOOP_BACK_OFF,
                OperationType.CREATE,
                OperationState.FAILED,
                f"{statuses.FAILURE}{errors.text(error)}",
            )
            patch = statuses.changed(change, run.now)
            patch["lastOperation"]["errorCode"] = errors.code(error)
            event = EventIntent(type="Warning", reason="CreationFailed", note=str(error)[:900])
            await run.report(patch, event)
        return Failed(str(error), run.request.retry(error))


def _deletion_text(error: WindowboxError) -> str:
    return f"VM deletion failed due to - {errors.text(error)}. However, will re-try. {statuses.DELETING}"
