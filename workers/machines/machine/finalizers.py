"""Finalizers on MachineClasses and their Secrets, as long as Machines or classes refer to them (B13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bus.messages import Reason, Wish
from bus.outcomes import Done, Ignored, Outcome, RequeueAfter, Unfinished, backoff
from windowbox.errors import Conflict, Missing
from windowbox.models import machinekeys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINES, SECRETS, ObjectRef, Resource
from workers.core.lifecycle.kinds import Run
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.core.recorder import Recorder
from workers.machines.machine import specs
from workers.machines.machine.views import MachineViews, require_listed

_LONGEST = 300.0


@dataclass(frozen=True)
class Finalizers:
    targets: TargetClusters
    views: MachineViews

    async def of_class(self, ref: ObjectRef, wish: Wish, recorder: Recorder) -> Outcome:
        """A class is held while Machines are of it."""
        found = await recorder.read(ref)
        if found is None:
            return Ignored("gone")
        held = machinekeys.FINALIZER in found.finalizers

        async def act() -> bool:
            return bool(self.views.of_class(ref))

        wanted = bool(await recorder.call("machines", None, act))
        if wanted == held or (wanted and found.deleting):
            return Ignored()
        own = self._own(ref, found, recorder)
        if held:
            await require_listed(self.views, ref.cluster, recorder)
            if await _any(
                own, MACHINES, ref.namespace, lambda one: specs.class_name_or_none(one) == ref.name
            ):
                return _again(wish, "a Machine of this class has just been made")
        others = [one for one in found.finalizers if one != machinekeys.FINALIZER]
        head = {
            "uid": found.uid,
            "resourceVersion": found.resource_version,
            "finalizers": [*others, machinekeys.FINALIZER] if wanted else others,
        }
        try:
            await own.merge(MACHINE_CLASSES, ref.namespace, ref.name, {"metadata": head})
        except Conflict as error:
            return _again(wish, str(error))
        return Done("ensured")

    async def of_secret(self, ref: ObjectRef, wish: Wish, recorder: Recorder) -> Outcome:
        """A Secret is held while classes of its namespace refer to it."""

        async def act() -> bool:
            return bool(self.views.classes_with(ref))

        wanted = bool(await recorder.call("classes", None, act))
        own = self._own(ref, Object({}), recorder)
        held = await _secret_held(own, ref)
        if held is None:
            # Nobody tells when a Secret appears.
            return _again(wish, "the Secret does not exist", first=1.0) if wanted else Ignored("gone")
        if held == wanted:
            return Ignored()
        if held:
            await require_listed(self.views, ref.cluster, recorder)
            if await _any(own, MACHINE_CLASSES, ref.namespace, lambda one: ref.name in specs.secrets(one)):
                return _again(wish, "a MachineClass with this Secret has just been made")
        key = "finalizers" if wanted else "$deleteFromPrimitiveList/finalizers"
        patch = {"metadata": {key: [machinekeys.SECRET_FINALIZER]}}
        await own.strategic_merge(SECRETS, ref.namespace, ref.name, patch)
        return Done("ensured")

    def _own(self, ref: ObjectRef, found: Object, recorder: Recorder) -> TargetCluster:
        return self.targets.own_cluster(Run(ref, found, None, recorder))


async def _secret_held(own: TargetCluster, ref: ObjectRef) -> bool | None:
    """Whether the Secret has the finalizer; None if there is no such Secret."""

    async def act() -> bool | None:
        api = await own.connection.api()
        try:
            found = await api.get(SECRETS, ref.namespace, ref.name)
        except Missing:
            return None
        # One that is being deleted takes no finalizer any more.
        return machinekeys.SECRET_FINALIZER in found.finalizers if not found.deleting else _held(found)

    answer: bool | None = await own.recorder.call("look", str(ref), act)
    return answer


def _held(found: Object) -> bool | None:
    return True if machinekeys.SECRET_FINALIZER in found.finalizers else None


async def _any(
    own: TargetCluster, resource: Resource, namespace: str, matches: Callable[[Object], bool]
) -> bool:
    """Whether one of the namespace's objects matches, as the API has them."""

    async def act() -> bool:
        api = await own.connection.api()
        async for found in api.objects(resource._replace(within=namespace)):
            if matches(found):
                return True
        return False

    return bool(await own.recorder.call("list", {"kind": resource.id, "namespace": namespace}, act))


def _again(wish: Wish, note: str, first: float = 0.1) -> Outcome:
    attempt = wish.attempt + 1
    after = backoff(attempt, first=first, longest=_LONGEST)
    return Unfinished(note, RequeueAfter(Wish(reason=Reason.RETRY, attempt=attempt), after))
