"""Deletion of a Machine in short runs: drain, delete the Pod, delete the node, remove the finalizer.

Where a run stands follows from the objects: nothing is remembered between runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bus.messages import EventIntent, Reason, Wish
from bus.outcomes import Done, Ignored, Outcome, RequeueAfter, Unfinished, backoff
from windowbox.errors import Malformed, NotJoined, PermanentError, TransientError, WindowboxError
from windowbox.models import machinekeys
from windowbox.models.machines import OperationState, OperationType, Phase
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINES, NODES, PODS, SECRETS
from windowbox.settings.kindsettings import MachineSettings
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.machines.machine import drain, names, reasons, specs, statuses
from workers.machines.machine.creation import Creation
from workers.machines.machine.evictions import Evictions
from workers.machines.machine.orphans import may_be_of
from workers.machines.machine.phases import Change
from workers.machines.machine.run import MachineRun
from workers.machines.machine.shoots import Shoots
from workers.machines.objects import without_finalizer

_GRACE = 2
"""Seconds for the machine's Pod to end. Its node is empty, and an init such as systemd heeds no SIGTERM."""
_POD_SAFETY = 30.0
"""Seconds until the next check of the Pod, if no event tells that it is gone."""
_LONGEST_PAUSE = 20.0


@dataclass(frozen=True)
class Deletion:
    targets: TargetClusters
    shoots: Shoots
    creation: Creation
    settings: MachineSettings

    async def run(self, run: MachineRun) -> Outcome:
        if machinekeys.FINALIZER not in run.machine.finalizers:
            return Ignored("not ours")  # nothing was made for it, or it is no longer held
        try:
            namespace, credentials = await self.creation.place(run)
        except Malformed:
            if run.phase not in (Phase.NEW, Phase.CRASH_LOOP_BACK_OFF):
                raise
            # It never had a class that says where; should a Pod be left, it is an orphan then.
            await let_go(run, self.targets.own_cluster(run.run))
            return Done("deleted")
        shoot = await self._shoot(run)
        async with self.targets.provider(run.run, *credentials) as provider:
            pod = await provider.live(PODS, namespace, names.pod(run.ref.name))
        if pod is not None and not may_be_of(pod, run.ref):
            pod = None
        if pod is not None and not pod.deleting:
            # Not in the provider cluster's turn: a slow Shoot would hold up machines of others there.
            # Of a Pod that has ended no kubelet is left, which could let Pods go.
            if not reasons.has_ended(pod) and (waiting := await self._drained(run, shoot)):
                return waiting
            await self._say(run, statuses.DELETING)
            async with self.targets.provider(run.run, *credentials) as provider:
                gone = not await provider.remove(PODS, namespace, pod.name, grace=_grace(run), uid=pod.uid)
        else:
            gone = pod is None
            if not gone:
                await self._say(run, statuses.DELETING)
        if not gone:
            again = RequeueAfter(Wish(reason=Reason.RETRY), _POD_SAFETY)
            return Unfinished(f"waiting for Pod {names.pod(run.ref.name)} to be gone", again)
        return await self._finish(run, shoot)

    async def _shoot(self, run: MachineRun) -> TargetCluster | None:
        """The cluster of its node; None if there is none, or none that anything was in."""
        try:
            return await self.shoots.target(run.ref, run.recorder)
        except NotJoined:
            if statuses.state(run.machine).conditions and not self._forced(run, None).forced:
                raise
            return None

    def _forced(self, run: MachineRun, node: Object | None) -> drain.Mode:
        timeouts = specs.timeouts(run.machine, self.settings)
        return drain.mode(run.machine, node, timeouts, _asked(run), run.now)

    async def _drained(self, run: MachineRun, shoot: TargetCluster | None) -> Outcome | None:
        """What there is to wait for before the machine may go; nothing if its node is empty."""
        if shoot is None or not (name := await _node_name(run, shoot)):
            return None
        node = await shoot.cached(NODES, "", name)
        chosen = self._forced(run, node)
        timeouts = specs.timeouts(run.machine, self.settings)
        try:
            if node is None or chosen.machine_too:
                # What the bus tells of it may be old.
                node = await shoot.live(NODES, "", name)
                chosen = self._forced(run, node)
            if node is None:
                return None
            evicting = run.now < drain.evicted_until(_asked(run), timeouts)
            evictions = Evictions(shoot, node, run.now)
            left = await evictions.step(chosen, evicting=evicting)
            if chosen.forced:
                await evictions.detach()
        except (TransientError, PermanentError) as error:
            if chosen.machine_too:
                return None
            left = [f"the Shoot cannot be asked: {error}"]
        if not left or chosen.machine_too:
            return None
        await self._say(run, _drain_text(left))
        return _again(run, f"node {name}: {'; '.join(left)}")

    async def _finish(self, run: MachineRun, shoot: TargetCluster | None) -> Outcome:
        """The Pod is gone: take the node and the token away, and let the Machine go."""
        if shoot is not None:
            try:
                await self._remove_node(run, shoot)
                if not statuses.state(run.machine).conditions:  # else it was removed when the machine joined
                    await shoot.remove(SECRETS, "kube-system", names.token(names.token_id(run.machine.uid)))
            except WindowboxError:
                if not self._forced(run, None).machine_too:
                    raise
        await let_go(run, self.targets.own_cluster(run.run))
        return Done("deleted")

    async def _remove_node(self, run: MachineRun, shoot: TargetCluster) -> None:
        if not (name := await _node_name(run, shoot)):
            return
        node = await shoot.cached(NODES, "", name)
        if node is not None and machinekeys.NODE_FINALIZER in node.finalizers:
            patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": [machinekeys.NODE_FINALIZER]}}
            await shoot.strategic_merge(NODES, "", name, patch)
        if node is not None or statuses.state(run.machine).conditions:
            await shoot.remove(NODES, "", name)

    async def _say(self, run: MachineRun, text: str) -> None:
        """What is being done. The phase is Terminating from the first word on."""
        change = Change(Phase.TERMINATING, OperationType.DELETE, OperationState.PROCESSING, text)
        patch = statuses.changed(change, run.now)
        patch["currentStatus"]["preserveExpiryTime"] = None
        if run.phase == Phase.TERMINATING:
            patch["currentStatus"] = dict(statuses.current(run.machine))
        await run.report(patch)


async def _node_name(run: MachineRun, shoot: TargetCluster) -> str:
    """The name of the Machine's node. A label with another name than its Pod's counts if the node agrees."""
    name, own = str(run.machine.labels.get(machinekeys.NODE) or ""), names.pod(run.ref.name)
    if name in ("", own):
        return name
    node = await shoot.cached(NODES, "", name)
    agrees = node is not None and node.labels.get(machinekeys.NODE_MACHINE) == run.ref.name
    return name if agrees else own


async def let_go(run: MachineRun, own: TargetCluster) -> None:
    """Take our finalizer off the Machine."""
    patch = {"metadata": without_finalizer(run.machine, machinekeys.FINALIZER)}
    await own.merge(MACHINES, run.ref.namespace, run.ref.name, patch)


async def tell_failure(run: MachineRun, error: WindowboxError, text: str) -> None:
    """Say why the machine cannot be ended."""
    change = Change(Phase.TERMINATING, OperationType.DELETE, OperationState.FAILED, text)
    event = EventIntent(type="Warning", reason="DeletionFailed", note=str(error)[:900])
    await run.report(statuses.changed(change, run.now), event)


def _grace(run: MachineRun) -> int:
    forced = str(run.machine.labels.get(machinekeys.FORCE_DELETION, "")).lower() == "true"
    return 0 if forced else _GRACE


def _asked(run: MachineRun) -> datetime:
    return statuses.deletion_asked(run.machine) or run.now


def _drain_text(left: list[str]) -> str:
    return f"{'; '.join(left)}. {statuses.DRAINING}"


def _again(run: MachineRun, note: str) -> Outcome:
    attempt = run.wish.attempt + 1
    pause = backoff(attempt, first=0.25, longest=_LONGEST_PAUSE)
    return Unfinished(note, RequeueAfter(Wish(reason=Reason.RETRY, attempt=attempt), pause))
