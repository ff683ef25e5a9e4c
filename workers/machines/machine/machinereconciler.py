"""The reconciler of the pool `machine`: read → gone? → deletion, or creation → joining.

Deletion takes short runs: drain, delete the Pod, delete the node, remove the finalizer. The objects show
where a run continues: no state is kept between runs.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bus.messages import EventIntent, Reason, Wish
from bus.outcomes import Done, Failed, Ignored, Outcome, RequeueAfter, Unfinished
from windowbox.errors import (
    Conflict,
    Malformed,
    NotJoined,
    PermanentError,
    TransientError,
    Waiting,
    WindowboxError,
)
from windowbox.models import machinekeys
from windowbox.models.extensions import instant, spelled
from windowbox.models.machines import OperationState, OperationType, Phase
from windowbox.models.objects import Object, mappings
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, NODES, PODS, SECRETS
from windowbox.settings.kindsettings import MachineSettings
from workers.core import clock
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.core.reconcile import Request
from workers.core.reports import with_report
from workers.machines import names
from workers.machines.machine import machinespecs, machinestatus, nodedrain, reasons
from workers.machines.machine.cloudmachines import CloudMachines
from workers.machines.machine.machinecreation import MachineCreation
from workers.machines.machine.machinejoining import MachineJoining
from workers.machines.machine.machinemanifests import may_be_of
from workers.machines.machine.machineorphans import Finalizers, Orphans, are_leaving
from workers.machines.machine.machinestatus import NOT_CREATED, MachineRun, Patch
from workers.machines.machine.machineviews import MachineViews, ProviderClusters, Shoots
from workers.machines.machine.nodedrain import NodeDrain
from workers.machines.machine.phases import Change
from workers.machines.machine.preserving import Preserving
from workers.machines.machineobjects import without_finalizer

_UNSEEN = 10.0
"""Seconds until a Pod that the bus does not show is created once more."""
_GRACE = 2
"""Seconds for the machine's Pod to terminate. Its node is empty, and systemd as init ignores SIGTERM."""
_POD_CHECK = 30.0
"""Seconds until the next check of a terminating Pod, if no event reports its end."""


class MachineReconciler:
    """Reconciles Machines; holds classes and Secrets with finalizers; deletes orphaned Pods and nodes."""

    def __init__(
        self,
        targets: TargetClusters,
        shoots: Shoots,
        views: MachineViews,
        settings: MachineSettings,
        providers: ProviderClusters,
        clouds: CloudMachines,
    ) -> None:
        self._targets = targets
        self._shoots = shoots
        self._settings = settings
        self._creation = MachineCreation(targets, shoots, settings, providers, clouds)
        preserving = Preserving(targets, settings)
        self._joining = MachineJoining(targets, settings, views, self._creation, providers, preserving)
        self._orphans = Orphans(targets, views, settings, clouds.settings)
        self._finalizers = Finalizers(targets, views)

    async def reconcile(self, request: Request) -> Outcome:
        ref, recorder = request.ref, request.recorder
        match ref.kind:
            case MACHINE_CLASSES.id:
                return await self._finalizers.of_class(request)
            case SECRETS.id:
                return await self._finalizers.of_secret(request)
            case PODS.id:
                return await self._orphans.pod(ref, recorder)
            case NODES.id:
                return await self._orphans.node(ref, recorder)
        found = await recorder.read(ref)
        if found is None:
            return await self._orphans.pods_of_deleted(ref, recorder)
        reported = await request.reports.last()
        run = MachineRun(request, with_report(found, reported), await clock.now(recorder))
        starts = (
            found.deleting and machinekeys.FINALIZER in found.finalizers and run.phase != Phase.TERMINATING
        )
        if starts and await are_leaving(self._targets.own_cluster(run.run), ref.namespace):
            # Control plane migration deletes the object here; its Pod stays for the other seed.
            await self._remove_finalizer(run)
            return Done("its Worker is being migrated: the machine stays")
        try:
            return await (self._delete(run) if found.deleting else self._advance(run))
        except (Conflict, Waiting):
            raise
        except (TransientError, PermanentError) as error:
            if isinstance(error, NotJoined) and not found.deleting:
                if run.phase in NOT_CREATED:
                    await run.report_reason(reasons.Reason("ShootNotJoined", str(error)))
                raise
            await self._report_failure(run, error)
            return Failed(str(error), request.retry(error))

    async def quarantine_patch(self, request: Request, found: Object, event: EventIntent) -> Patch | None:
        if request.ref.kind != MACHINES.id:
            return None
        at = spelled(await clock.now(request.recorder))
        words = {"description": event.note, "state": OperationState.FAILED, "lastUpdateTime": at}
        return {"lastOperation": {**found.last_operation, **words}}

    async def _advance(self, run: MachineRun) -> Outcome:
        """Create the machine, and follow it from its Pod to its node."""
        if run.phase in NOT_CREATED:
            await self._creation.ensure(run)
            processing, text = OperationState.PROCESSING, machinestatus.CREATING
            change = Change(Phase.PENDING, OperationType.CREATE, processing, text)
            await run.report_change(change)
        shoot = await self._shoots.target(run.ref, run.recorder)
        pod = None
        if run.phase == Phase.PENDING:
            pod = await self._joining.pod(run)
            if pod is not None and not pod.deleting and reasons.has_ended(pod):
                # The Pod is recreated once it is gone.
                await run.report_reason(reasons.reason(reasons.Facts(pod)))
                _, credentials = await self._creation.place(run)
                async with self._targets.provider(run.run, *credentials) as target:
                    await target.remove(PODS, pod.namespace, pod.name, grace=0, uid=pod.uid)
                raise Waiting("waiting for the Pod that has ended to be gone")
            if pod is None or pod.deleting:
                state = machinestatus.state(run.machine)
                pending = (run.now - state.since).total_seconds()
                if pod is None and pending > _UNSEEN:
                    await self._creation.ensure(run)
                timeout = machinespecs.timeouts(run.machine, self._settings).creation
                left = timeout - (run.now - state.created).total_seconds()
                if left >= 0:
                    again = min(max(_UNSEEN - pending, 0.0) + 1.0, left + 0.05)
                    raise Waiting("waiting for the Pod to be seen", retry_after=again)
        if shoot is not None:
            return await self._joining.follow(run, shoot, pod)
        # Without a Shoot there is no node: the machine is Available when its Pod runs.
        if pod is None:
            return Ignored()
        if pod.status.get("phase") != "Running":
            await run.report_reason(reasons.reason(reasons.Facts(pod)))
            return Unfinished("waiting for the Pod to run")
        successful, text = OperationState.SUCCESSFUL, machinestatus.CREATED
        change = Change(Phase.AVAILABLE, OperationType.CREATE, successful, text)
        ips = sorted({str(one["ip"]) for one in mappings(pod.status.get("podIPs")) if one.get("ip")})
        addresses = [{"type": "Hostname", "address": names.pod(run.ref.name)}]
        addresses += [{"type": "InternalIP", "address": ip} for ip in ips]
        await run.report_change(change, addresses=addresses)
        return Done()

    async def _delete(self, run: MachineRun) -> Outcome:
        """Drain the node, delete the Pod, then the node and the token; remove the finalizer last."""
        if machinekeys.FINALIZER not in run.machine.finalizers:
            return Ignored("not ours")  # no Pod was created for it, or the machine is gone
        try:
            namespace, credentials = await self._creation.place(run)
        except Malformed:
            if run.phase not in NOT_CREATED:
                raise
            # Without a class there was never a place for a Pod; if there is one, it is deleted as an orphan.
            await self._remove_finalizer(run)
            return Done("deleted")
        try:
            shoot = await self._shoots.target(run.ref, run.recorder)
        except NotJoined:
            if machinestatus.state(run.machine).conditions and not self._drain_mode(run, None).forced:
                raise
            shoot = None  # no node of it ever joined, or the deletion is forced
        async with self._targets.provider(run.run, *credentials) as provider:
            pod = await provider.live(PODS, namespace, names.pod(run.ref.name))
        if pod is not None and may_be_of(pod, run.ref):
            # The provider cluster is closed meanwhile: a slow Shoot would block other machines there. The
            # kubelet of an ended Pod cannot terminate Pods, so its node is not drained.
            works = not pod.deleting and not reasons.has_ended(pod)
            if works and shoot is not None and (waiting := await self._drain(run, shoot)):
                return waiting
            await self._report_deleting(run, machinestatus.DELETING)
            gone = False
            if not pod.deleting:
                await self._creation.check_deletion(run)
                forced = str(run.machine.labels.get(machinekeys.FORCE_DELETION, "")).lower() == "true"
                grace = 0 if forced else _GRACE
                async with self._targets.provider(run.run, *credentials) as provider:
                    gone = not await provider.remove(PODS, namespace, pod.name, grace=grace, uid=pod.uid)
            if not gone:
                again = RequeueAfter(Wish(reason=Reason.RETRY), _POD_CHECK)
                return Unfinished(f"waiting for Pod {pod.name} to be gone", again)
        if shoot is not None:
            try:
                await self._remove_node(run, shoot)
            except WindowboxError:
                if not self._drain_mode(run, None).machine_too:
                    raise
        await self._creation.release(run)
        await self._remove_finalizer(run)
        return Done("deleted")

    def _drain_mode(self, run: MachineRun, node: Object | None) -> nodedrain.Mode:
        timeouts = machinespecs.timeouts(run.machine, self._settings)
        return nodedrain.mode(run.machine, node, timeouts, _deleted_at(run), run.now)

    async def _drain(self, run: MachineRun, shoot: TargetCluster) -> Outcome | None:
        """Drain the node. The outcome waits for its Pods; None when the machine may be deleted."""
        if not (name := await _node_name(run, shoot)):
            return None
        node = await shoot.cached(NODES, "", name)
        mode = self._drain_mode(run, node)
        try:
            if node is None or mode.machine_too:
                # Force destroys work: the bus may be behind, so the API decides.
                node = await shoot.live(NODES, "", name)
                mode = self._drain_mode(run, node)
            if node is None:
                return None
            timeouts = machinespecs.timeouts(run.machine, self._settings)
            evicting = run.now < nodedrain.evicted_until(_deleted_at(run), timeouts)
            drain = NodeDrain(shoot, node, run.now)
            left = await drain.step(mode, evicting=evicting)
            if mode.forced:
                await drain.detach()
        except (TransientError, PermanentError) as error:
            left = [f"the Shoot cannot be asked: {error}"]
        if not left or mode.machine_too:
            return None
        said = "; ".join(left)
        await self._report_deleting(run, f"{said}. {machinestatus.DRAINING}")
        return Unfinished(f"node {name}: {said}", run.retry_drain())

    async def _remove_node(self, run: MachineRun, shoot: TargetCluster) -> None:
        """Delete the node, and the bootstrap token of a machine that never joined."""
        joined = bool(machinestatus.state(run.machine).conditions)
        if name := await _node_name(run, shoot):
            node = await shoot.cached(NODES, "", name)
            if node is not None and machinekeys.NODE_FINALIZER in node.finalizers:
                patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": [machinekeys.NODE_FINALIZER]}}
                await shoot.strategic_merge(NODES, "", name, patch)
            if node is not None or joined:
                await shoot.remove(NODES, "", name)
        if not joined:
            await shoot.remove(SECRETS, "kube-system", names.token(names.token_id(run.machine.uid)))

    async def _remove_finalizer(self, run: MachineRun) -> None:
        patch = {"metadata": without_finalizer(run.machine, machinekeys.FINALIZER)}
        await self._targets.own_cluster(run.run).merge(MACHINES, run.ref.namespace, run.ref.name, patch)

    async def _report_deleting(self, run: MachineRun, text: str) -> None:
        """Report the progress of the deletion: the first report changes the phase, later ones keep it."""
        change = Change(Phase.TERMINATING, OperationType.DELETE, OperationState.PROCESSING, text)
        patch = machinestatus.changed(change, run.now)
        patch["currentStatus"]["preserveExpiryTime"] = None
        if run.phase == Phase.TERMINATING:
            patch["currentStatus"] = dict(machinestatus.current(run.machine))
        await run.report(patch)

    async def _report_failure(self, run: MachineRun, error: TransientError | PermanentError) -> None:
        """Report why the machine cannot be created or deleted. After its creation it keeps its phase."""
        note = str(error)[:900]
        if run.machine.deleting:
            if run.request.wish.attempt == 0 and not isinstance(error, PermanentError):
                return  # a first transient error passes by itself
            why = machinestatus.error_text(error)
            text = f"VM deletion failed due to - {why}. However, will re-try. {machinestatus.DELETING}"
            change = Change(Phase.TERMINATING, OperationType.DELETE, OperationState.FAILED, text)
            event = EventIntent(type="Warning", reason="DeletionFailed", note=note)
            await run.report_change(change, event)
        elif run.phase in NOT_CREATED:
            timeout = machinespecs.timeouts(run.machine, self._settings).creation
            late = run.now - machinestatus.state(run.machine).created > timedelta(seconds=timeout)
            text = f"{machinestatus.FAILURE}{machinestatus.error_text(error)}"
            phase = Phase.FAILED if late else Phase.CRASH_LOOP_BACK_OFF
            code = machinestatus.error_code(error)
            change = Change(phase, OperationType.CREATE, OperationState.FAILED, text, code)
            event = EventIntent(type="Warning", reason="CreationFailed", note=note)
            await run.report_change(change, event)


def _deleted_at(run: MachineRun) -> datetime:
    """When the Machine was deleted: its drain starts then."""
    return instant(run.machine.metadata.get("deletionTimestamp")) or run.now


async def _node_name(run: MachineRun, shoot: TargetCluster) -> str:
    """The name of the Machine's node. A label that differs from its Pod's name counts if the node agrees."""
    name, own = str(run.machine.labels.get(machinekeys.NODE) or ""), names.pod(run.ref.name)
    if name in ("", own):
        return name
    node = await shoot.cached(NODES, "", name)
    agrees = node is not None and node.labels.get(machinekeys.NODE_MACHINE) == run.ref.name
    return name if agrees else own
