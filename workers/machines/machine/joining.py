"""A Machine whose Pod exists: wait for its node, follow its health, declare it Failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bus.messages import EventIntent, Reason, Wish
from bus.outcomes import Done, Ignored, Outcome, RequeueAfter, Unfinished
from windowbox.errors import PermanentError, TransientError
from windowbox.models import machinekeys
from windowbox.models.extensions import instant, spelled
from windowbox.models.machines import OperationState, OperationType, Phase
from windowbox.models.objects import Object
from windowbox.models.refs import CERTIFICATE_REQUESTS, MACHINE_CLASSES, MACHINES, NODES, SECRETS, ObjectRef
from windowbox.settings.kindsettings import MachineSettings
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.machines.machine import names, nodes, nodesync, phases, reasons, specs, statuses
from workers.machines.machine.inplace import InPlace
from workers.machines.machine.nodesync import Patch
from workers.machines.machine.phases import Change, Verdict
from workers.machines.machine.pods import MachinePods
from workers.machines.machine.preserving import Preserving
from workers.machines.machine.reasons import Facts, Request
from workers.machines.machine.run import MachineRun
from workers.machines.machine.views import MachineViews, may_be_given_up

_PERMIT_RETRY = 5.0
_LOOKS = (15.0, 30.0, 60.0, 120.0)
"""Seconds after which a machine that has not joined is looked at once more, should no event come."""
_BOOTSTRAP = "system:bootstrap:"
_KUBELETS = "spec.signerName=kubernetes.io/kube-apiserver-client-kubelet"
"""Kubelets also request certificates as servers, every few days: a Shoot may have thousands of those."""
_MOST_REQUESTS = 50
"""Of one machine. A kubelet makes a new one after each quarter of an hour without an answer."""


@dataclass(frozen=True)
class Joining:
    targets: TargetClusters
    settings: MachineSettings
    views: MachineViews
    pods: MachinePods

    async def run(self, run: MachineRun, shoot: TargetCluster, pod: Object | None) -> Outcome:
        """Compare the Machine with its node."""
        node = await self._node(run, shoot)
        if node is not None and node.deleting:
            # Somebody wants the node to go, and its machine with it.
            await self.targets.own_cluster(run.run).remove(MACHINES, run.ref.namespace, run.ref.name)
            return Done(f"node {node.name} is being deleted")
        timeouts, state = specs.timeouts(run.machine, self.settings), statuses.state(run.machine)
        asks = phases.may_have_lost_its_pod(state, node, timeouts)
        loss = await self.pods.loss(run) if asks else None
        if loss and run.phase == Phase.UNKNOWN:
            # It may stay so: until another one is replaced, or for ever, if it has no health timeout.
            await self._tell_loss(run, phases.unhealthy(state, node, timeouts, loss))
        found = phases.verdict(state, node, timeouts, run.now, loss)
        if found.needs_permit and not await self._is_permitted(run, shoot):
            wish = Wish(reason=Reason.DUE)
            note = "another Machine of its MachineDeployment is being replaced"
            return Unfinished(note, RequeueAfter(wish, _PERMIT_RETRY))
        before = run.phase
        if found.change:
            await self._tell(run, found.change, node)
            if before in (Phase.PENDING, Phase.NEW) and found.change.phase == Phase.RUNNING:
                await self._forget_token(run, shoot)
        elif node is not None and nodes.changed(statuses.state(run.machine).conditions, _conditions(node)):
            await self._tell_conditions(run, node)
        if node is not None:
            await self._sync(run, shoot, node)
        if run.phase == Phase.PENDING:
            return await self._waiting(run, shoot, pod, node, found)
        again = await Preserving(self.targets, self.settings).run(run, shoot, node)
        updating = node is not None and run.phase != Phase.FAILED
        if updating and node and (update := await InPlace(self.settings).run(run, shoot, node)):
            return Unfinished("the node is emptied for its update in place", update)
        looks = [again] if again else []
        looks += [(found.deadline, found.then)] if found.deadline else []
        deadline, why = min(looks, default=(None, ""))
        return _until(deadline, run.now, why=why)

    async def _node(self, run: MachineRun, shoot: TargetCluster) -> Object | None:
        name = str(run.machine.labels.get(machinekeys.NODE) or names.pod(run.ref.name))
        found = await shoot.cached(NODES, "", name)
        if found is None and statuses.state(run.machine).conditions:
            # It had a node. That the bus knows none proves nothing: the bus may have been made anew.
            found = await shoot.live(NODES, "", name)
        return found

    async def _tell(self, run: MachineRun, change: Change, node: Object | None) -> None:
        conditions = _conditions(node) if node is not None else None
        if change.phase == Phase.FAILED and run.phase == Phase.PENDING:
            change = _with_last_words(change, str(run.machine.last_operation.get("description") or ""))
        # That it has joined is what everybody expects: its status says so, and no Event costs another write.
        event = (
            None
            if change.state == OperationState.SUCCESSFUL
            else EventIntent(type="Warning", reason=str(change.phase), note=change.description[:900])
        )
        await run.report(statuses.changed(change, run.now, conditions), event)

    async def _tell_conditions(self, run: MachineRun, node: Object) -> None:
        """The node's conditions alone; the phase and its time stay."""
        await self._tell_part(run, conditions=_conditions(node))

    async def _tell_loss(self, run: MachineRun, change: Change) -> None:
        """The description alone; the phase and its time stay."""
        last = statuses.operation(change.type, change.state, change.description, spelled(run.now))
        await self._tell_part(run, lastOperation=last)

    async def _tell_part(self, run: MachineRun, **part: Any) -> None:
        """Report a part of the status. The rest is repeated as it is."""
        rest = {
            "conditions": [dict(one) for one in statuses.state(run.machine).conditions],
            "lastOperation": dict(run.machine.last_operation),
            "currentStatus": dict(statuses.current(run.machine)),
        }
        await run.report(rest | part)

    async def _sync(self, run: MachineRun, shoot: TargetCluster, node: Object) -> None:
        """Put on the node what its Machine wants there, unless two Machines claim it."""

        async def act() -> int:
            mine = [one for one in self.views.of_node(node.name) if one.namespace == run.ref.namespace]
            return len(mine)

        patch, capacity = nodesync.patch(run.machine, node), await self._capacity(run, node)
        if not (patch or capacity) or int(await run.recorder.call("claimants", node.name, act)) > 1:
            return
        if patch:
            await shoot.strategic_merge(NODES, "", node.name, patch)
        if capacity:
            await shoot.strategic_merge(NODES, "", node.name, capacity[0], part="status")
            await shoot.strategic_merge(NODES, "", node.name, capacity[1])

    async def _capacity(self, run: MachineRun, node: Object) -> tuple[Patch, Patch] | None:
        name = specs.class_name_or_none(run.machine)
        ref = ObjectRef(run.ref.cluster, MACHINE_CLASSES.id, run.ref.namespace, name)
        found = await run.recorder.read(ref) if name else None
        return nodesync.capacity(found, node) if found else None

    async def _forget_token(self, run: MachineRun, shoot: TargetCluster) -> None:
        """A token that has done its work must not do any other."""
        await shoot.remove(SECRETS, "kube-system", names.token(names.token_id(run.machine.uid)))

    async def _is_permitted(self, run: MachineRun, shoot: TargetCluster) -> bool:
        """Whether this Machine may be given up now."""
        deployment = str(run.machine.labels.get(machinekeys.DEPLOYMENT, ""))
        node = await self._node(run, shoot)
        if node is not None:
            # What the bus says may be old, where the API server cannot be watched just now.
            live = await shoot.live(NODES, "", node.name)
            if (
                live is not None
                and live.resource_version != node.resource_version
                and nodes.ready(live) != nodes.ready(node)
            ):
                return False

        async def act() -> bool:
            others = self.views.of_deployment(run.ref, deployment) if deployment else []
            return may_be_given_up(run.ref.name, others)

        return bool(await run.recorder.call("permit", deployment, act))

    async def _waiting(
        self,
        run: MachineRun,
        shoot: TargetCluster,
        pod: Object | None,
        node: Object | None,
        found: Verdict,
    ) -> Outcome:
        """Say why the machine has not joined yet."""
        asked = instant(pod.metadata.get("creationTimestamp")) if pod else None
        running = instant(reasons.running_since(pod)) if pod else None
        waiting = (run.now - (asked or run.now)).total_seconds()
        requests: Sequence[Request] = ()
        unlisted = ""
        if node is None and running and (run.now - running).total_seconds() >= 2:
            try:
                requests = await self._requests(run, shoot)
            except (TransientError, PermanentError) as error:
                # The retries of a failed run come ever later, and the creation timeout with them.
                unlisted = str(error)
        facts = Facts(
            pod=pod,
            node=node,
            requests=requests,
            unlisted=unlisted,
            running_for=(run.now - running).total_seconds() if running else None,
            waiting_for=waiting,
        )
        why = reasons.reason(facts)
        await tell_reason(run, why)
        looks = [pause for pause in _LOOKS if pause > waiting] or [_LOOKS[-1]]
        again = (asked or run.now) + timedelta(
            seconds=looks[0] if waiting < _LOOKS[-1] else waiting + looks[0]
        )
        deadline = min(again, found.deadline or again)
        return _until(deadline, run.now, why.text if why else "waiting for the machine to join")

    async def _requests(self, run: MachineRun, shoot: TargetCluster) -> list[Request]:
        """The certificate requests of this machine's kubelet."""
        user = _BOOTSTRAP + names.token_id(run.machine.uid)

        async def act() -> list[dict[str, Any]]:
            api = await shoot.connection.api()
            found: list[dict[str, Any]] = []
            async for one in api.objects(CERTIFICATE_REQUESTS, fields=_KUBELETS):
                if one.spec.get("username") == user:
                    found.append(_request(one))
                if len(found) == _MOST_REQUESTS:
                    break
            return found

        return [Request(**one) for one in await run.recorder.call("requests", user, act)]


async def tell_reason(run: MachineRun, why: reasons.Reason | None) -> None:
    """Say why a Machine is Pending, in its status and in an Event."""
    text = f"{statuses.CREATING}: {why.text}" if why else statuses.CREATING
    at = spelled(run.now)
    patch = {"lastOperation": statuses.operation(OperationType.CREATE, OperationState.PROCESSING, text, at)}
    event = EventIntent(type="Warning", reason=why.kind, note=why.text) if why else None
    await run.report(patch, event)


def _with_last_words(change: Change, before: str) -> Change:
    """A machine that came too late says why as well."""
    why = before.removeprefix(statuses.CREATING).removeprefix(": ")
    if not why:
        return change
    return Change(change.phase, change.type, change.state, f"{change.description} {why}")


def _conditions(node: Object) -> list[dict[str, Any]]:
    return [dict(one) for one in nodes.conditions(node)]


def _request(found: Object) -> dict[str, Any]:
    conditions = found.status.get("conditions")
    listed = conditions if isinstance(conditions, list) else []
    said = {one.get("type") for one in listed if isinstance(one, dict)}
    return {
        "name": found.name,
        "approved": "Approved" in said,
        "denied": "Denied" in said,
        "issued": bool(found.status.get("certificate")),
    }


def _until(deadline: datetime | None, now: datetime, note: str = "", why: str = "") -> Outcome:
    """Look again at the deadline; everything before that is told by events."""
    if deadline is None:
        return Ignored(note)
    after = max(0.0, (deadline - now).total_seconds()) + 0.05
    again = RequeueAfter(Wish(reason=Reason.DUE), after, why)
    return Unfinished(note, again) if note else Ignored(requeue=again)
