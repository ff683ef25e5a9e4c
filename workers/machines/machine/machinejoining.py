"""Machines with a Pod: wait until the node joins, follow its health, declare the Machine Failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from bus.messages import EventIntent, Reason, Wish
from bus.outcomes import Done, Ignored, Outcome, RequeueAfter, Unfinished
from windowbox.errors import PermanentError, TransientError, Waiting
from windowbox.models import machinekeys, refs
from windowbox.models.extensions import instant, spelled
from windowbox.models.machines import OperationState, Phase
from windowbox.models.objects import Object, mappings, merge
from windowbox.models.refs import ObjectRef
from windowbox.settings.kindsettings import MachineSettings
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.machines import names
from workers.machines.machine import machinenodes, machinespecs, machinestatus, nodeupdate, phases, reasons
from workers.machines.machine.machinecreation import MachineCreation
from workers.machines.machine.machinestatus import MachineRun
from workers.machines.machine.machineviews import MachineViews, ProviderClusters, may_be_replaced
from workers.machines.machine.phases import Verdict
from workers.machines.machine.preserving import Preserving
from workers.machines.machine.reasons import Facts, Request

_PERMIT_RETRY = 5.0
_CHECKS = (15.0, 30.0, 60.0, 120.0)
"""Seconds after which a machine that has not joined is reconciled without an event."""
_BOOTSTRAP = "system:bootstrap:"
_KUBELETS = "spec.signerName=kubernetes.io/kube-apiserver-client-kubelet"
"""Kubelets also request serving certificates, every few days: a Shoot may have thousands of those."""
_MOST_REQUESTS = 50
"""Limit for one machine. A kubelet creates a request for each quarter of an hour without an answer."""


@dataclass(frozen=True)
class MachineJoining:
    targets: TargetClusters
    settings: MachineSettings
    views: MachineViews
    creation: MachineCreation
    providers: ProviderClusters
    preserving: Preserving

    async def pod(self, run: MachineRun) -> Object | None:
        """The Machine's Pod on the bus. Pods in other clusters than its provider cluster do not count."""
        pods: dict[str, Object] = {}
        for ref, pod in await self.views.pods_of(run.ref, run.recorder):
            pods.setdefault(ref.cluster, pod)
        if not pods:
            return None
        try:
            _, credentials = await self.creation.place(run)
            return pods.get(await self.providers.of(run, credentials))
        except (TransientError, PermanentError, Waiting):
            return next(iter(pods.values()))  # its node may join while the provider cluster is unreachable

    async def follow(self, run: MachineRun, shoot: TargetCluster, pod: Object | None) -> Outcome:
        """Bring the Machine's phase in line with its node, and the node in line with the Machine."""
        node = await self._node(run, shoot)
        if node is not None and node.deleting:
            # A client deletes the node, which stands for its machine.
            await self.targets.own_cluster(run.run).remove(refs.MACHINES, run.ref.namespace, run.ref.name)
            return Done(f"node {node.name} is being deleted")
        timeouts, state = machinespecs.timeouts(run.machine, self.settings), machinestatus.state(run.machine)
        asks = phases.may_have_lost_its_pod(state, node, timeouts)
        loss = await self._loss(run) if asks else None
        if loss and run.phase == Phase.UNKNOWN:
            # Report it now: the Machine stays Unknown while another one is replaced, or without a timeout.
            lost = phases.unhealthy(state, node, timeouts, loss)
            last = machinestatus.operation(lost.type, lost.state, lost.description, spelled(run.now))
            await run.report_part(of_node=True, lastOperation=last)
        verdict = phases.verdict(state, node, timeouts, run.now, loss)
        if verdict.needs_permit and not await self._is_permitted(run, shoot):
            note = "another Machine of its MachineDeployment is being replaced"
            return Unfinished(note, RequeueAfter(Wish(reason=Reason.DUE), _PERMIT_RETRY))
        await self._report(run, shoot, node, verdict)
        if node is not None:
            await self._sync(run, shoot, node)
        if run.phase == Phase.PENDING:
            return await self._waiting(run, shoot, pod, node, verdict)
        preserved = await self.preserving.advance(run, shoot, node)
        updating = node is not None and run.phase != Phase.FAILED
        if updating and node and (again := await nodeupdate.advance(run, shoot, node, timeouts)):
            return Unfinished("the node is emptied for its update in place", again)
        deadlines = [preserved] if preserved else []
        deadlines += [(verdict.deadline, verdict.then)] if verdict.deadline else []
        if run.held_back:
            allowed = run.now + timedelta(seconds=run.held_back)
            deadlines.append((allowed, "changes of its node are reported again then"))
        if not deadlines:
            return Ignored()
        deadline, why = min(deadlines)
        return Ignored(requeue=_requeue_at(deadline, run.now, why))

    async def _node(self, run: MachineRun, shoot: TargetCluster) -> Object | None:
        name = str(run.machine.labels.get(machinekeys.NODE) or names.pod(run.ref.name))
        found = await shoot.cached(refs.NODES, "", name)
        if found is None and machinestatus.state(run.machine).conditions:
            # It had a node. The bus is no proof that the node is gone: its stream may have been recreated.
            found = await shoot.live(refs.NODES, "", name)
        return found

    async def _loss(self, run: MachineRun) -> reasons.Reason | None:
        """Why the Pod of a joined machine never runs again; None if it may, or if that is not known."""
        seen = await self.pod(run)
        if seen is not None and not reasons.has_ended(seen):
            return None
        try:
            namespace, credentials = await self.creation.place(run)
            async with self.targets.provider(run.run, *credentials) as provider:
                pod = await provider.live(refs.PODS, namespace, names.pod(run.ref.name))
                if pod is not None:
                    return reasons.loss(pod)
                # A wrong kubeconfig must not cost machines: another cluster lacks the namespace, too.
                home = await provider.live(refs.NAMESPACES, "", namespace)
        except (TransientError, PermanentError, Waiting):
            return None
        return None if home is None or home.deleting else reasons.gone(namespace, names.pod(run.ref.name))

    async def _is_permitted(self, run: MachineRun, shoot: TargetCluster) -> bool:
        """Whether this Machine may become Failed now."""
        deployment = str(run.machine.labels.get(machinekeys.DEPLOYMENT, ""))
        node = await self._node(run, shoot)
        if node is not None:
            # The bus may be behind while the API server of the Shoot cannot be watched.
            live = await shoot.live(refs.NODES, "", node.name)
            ready = machinenodes.condition(node, machinenodes.READY)
            if (
                live is not None
                and live.resource_version != node.resource_version
                and machinenodes.condition(live, machinenodes.READY) != ready
            ):
                return False

        async def is_permitted() -> bool:
            others = self.views.of_deployment(run.ref, deployment) if deployment else []
            return may_be_replaced(run.ref.name, others)

        return bool(await run.recorder.call("permit", deployment, is_permitted))

    async def _report(
        self, run: MachineRun, shoot: TargetCluster, node: Object | None, verdict: Verdict
    ) -> None:
        """Report the new phase, or else the node's changed conditions."""
        conditions = machinenodes.bounded(machinenodes.conditions(node)) if node is not None else None
        if (change := verdict.change) is None:
            shown = machinestatus.state(run.machine).conditions
            if conditions is not None and machinenodes.changed(shown, conditions):
                await run.report_part(of_node=True, conditions=conditions)
            return
        before = run.phase
        if before == Phase.PENDING and change.phase == Phase.FAILED:
            # The last reason why the machine has not joined stays readable.
            said = str(run.machine.last_operation.get("description") or "")
            if why := said.removeprefix(machinestatus.CREATING).removeprefix(": "):
                change = replace(change, description=f"{change.description} {why}")
        event = EventIntent(type="Warning", reason=str(change.phase), note=change.description[:900])
        # Success needs no Event: the status shows it, and each Event costs a write.
        successful = change.state == OperationState.SUCCESSFUL
        # The tenant decides how often the node fails; deadlines and updates come by themselves.
        of_node = {str(before), str(change.phase)} == {Phase.RUNNING, Phase.UNKNOWN}
        await run.report_change(change, None if successful else event, conditions, of_node=of_node)
        if before in (Phase.PENDING, Phase.NEW) and change.phase == Phase.RUNNING:
            # A used bootstrap token could add other nodes to the Shoot.
            token = names.token(names.token_id(run.machine.uid))
            await shoot.remove(refs.SECRETS, "kube-system", token)

    async def _sync(self, run: MachineRun, shoot: TargetCluster, node: Object) -> None:
        """Write what the Machine and its class ask for to the node, unless two Machines claim it."""
        patch, capacity = machinenodes.sync_patch(run.machine, node), None
        labels, size = dict[str, str](), dict[str, str]()
        if name := machinespecs.class_name_or_none(run.machine):
            ref = ObjectRef(run.ref.cluster, refs.MACHINE_CLASSES.id, run.ref.namespace, name)
            if found := await run.recorder.read(ref):
                capacity = machinenodes.capacity_patches(found, node)
                labels, size = self.creation.clouds.labels(run, found), self.creation.clouds.capacity(found)
        if labels:
            id_ = await self._provider_id(run)
            patch = merge(patch, machinenodes.cloud_patch(node, id_, labels, size)) or None
        if not (patch or capacity):
            return
        if await self.views.claimants(node.name, run.ref.namespace, run.recorder) > 1:
            return
        if patch:
            await shoot.strategic_merge(refs.NODES, "", node.name, patch)
        if capacity:
            # The status first: the annotation says that it was written.
            await shoot.strategic_merge(refs.NODES, "", node.name, capacity[0], part="status")
            await shoot.strategic_merge(refs.NODES, "", node.name, capacity[1])

    async def _provider_id(self, run: MachineRun) -> str:
        """The id that the creation has given the Machine; empty if it has none."""
        found, pod = run.machine, names.pod(run.ref.name)
        if found.spec.get("providerID") in (None, "", pod):
            # The bus may still show what its MachineSet wrote, and a node's id never changes.
            own = self.targets.own_cluster(run.run)
            found = await own.live(refs.MACHINES, run.ref.namespace, run.ref.name) or found
        id_ = str(found.spec.get("providerID") or "")
        return "" if id_ == pod else id_

    async def _waiting(
        self, run: MachineRun, shoot: TargetCluster, pod: Object | None, node: Object | None, verdict: Verdict
    ) -> Outcome:
        """Report why the machine has not joined yet."""
        created = (instant(pod.metadata.get("creationTimestamp")) if pod else None) or run.now
        started = instant(reasons.running_since(pod)) if pod else None
        waiting = (run.now - created).total_seconds()
        running = (run.now - started).total_seconds() if started else None
        requests: Sequence[Request] = ()
        unlisted = ""
        user = _BOOTSTRAP + names.token_id(run.machine.uid)

        async def list_requests() -> list[dict[str, Any]]:
            api = await shoot.connection.api()
            found: list[dict[str, Any]] = []
            async for one in api.objects(refs.CERTIFICATE_REQUESTS, fields=_KUBELETS):
                if one.spec.get("username") == user:
                    types = {condition.get("type") for condition in mappings(one.status.get("conditions"))}
                    said = {"approved": "Approved" in types, "denied": "Denied" in types}
                    found.append({"name": one.name, **said, "issued": bool(one.status.get("certificate"))})
                if len(found) == _MOST_REQUESTS:
                    break
            return found

        if node is None and running is not None and running >= 2:
            try:
                answer = await run.recorder.call("requests", user, list_requests)
                requests = [Request(**one) for one in answer]
            except (TransientError, PermanentError) as error:
                # No failure of the run: retries with growing delays would miss the creation timeout.
                unlisted = str(error)
        why = reasons.reason(Facts(pod, node, requests, unlisted, running, waiting))
        await run.report_reason(why)
        pause = next((pause for pause in _CHECKS if pause > waiting), waiting + _CHECKS[-1])
        again = created + timedelta(seconds=pause)
        note = why.text if why else "waiting for the machine to join"
        return Unfinished(note, _requeue_at(min(again, verdict.deadline or again), run.now))


def _requeue_at(deadline: datetime, now: datetime, why: str = "") -> RequeueAfter:
    """Requeue just after the deadline; events requeue the Machine before."""
    after = max(0.0, (deadline - now).total_seconds()) + 0.05
    return RequeueAfter(Wish(reason=Reason.DUE), after, why)
