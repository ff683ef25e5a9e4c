"""Deletion of a Worker's machines, and of the objects that they were created from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windowbox.errors import TransientError, Waiting
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, SECRETS
from workers.core import healthchecks
from workers.core.owned.targets import TargetCluster, in_batches
from workers.machines.worker.workerobserved import Machine, Observed

_FORCED = {"metadata": {"labels": {keys.FORCE_DELETION: "True"}}}
_HOLDING = frozenset((keys.FINALIZER, keys.SECRET_FINALIZER))
_KINDS = {
    MACHINES: "machines",
    MACHINE_SETS: "machine sets",
    MACHINE_DEPLOYMENTS: "machine deployments",
    MACHINE_CLASSES: "machine classes",
}
FAILED_RETRY = 30.0
"""Seconds until the next run while a machine has failed."""
_REQUEUE_AFTER = 1.0
"""Seconds until the next check of objects that send no event."""


async def delete(worker: Object, target: TargetCluster, found: Observed) -> None:
    """Remove all machine objects, whatever the spec asks for: no image and no Secret has to exist for that.

    Raises Waiting until the last is gone.
    """
    namespace = worker.namespace
    await force_machines(target, namespace, found.machines)
    # MachineDeployments delete their sets and machines. Sets and machines without an owner follow.
    if found.deployments:
        kind, left = MACHINE_DEPLOYMENTS, [o.name for o in found.deployments.values() if not o.deleting]
    elif found.sets:
        kind, left = MACHINE_SETS, [one.name for one in found.sets if not one.deleting]
    else:
        kind, left = MACHINES, [one.name for one in found.machines if not one.deleting]
    await in_batches(target.remove(kind, namespace, name) for name in left)
    require_no_failure(found.deployments.values())
    # Machines cannot be deleted without their class and its Secret.
    if not (found.machines or found.sets or found.deployments):
        await remove_classes(target, namespace, found.classes)
    _require_none(map(len, (found.machines, found.sets, found.deployments, found.classes)))
    # A recreated bus may not know objects that exist: only the API proves that none is left.
    _require_none(
        [len(await target.names_labelled(kind, namespace, {})) for kind in _KINDS], retry_after=_REQUEUE_AFTER
    )
    # The machine controller holds the provider's credentials until it has deleted the last machine.
    reference: Any = worker.spec.get("secretRef") or {}
    name, of_secret = reference.get("name"), reference.get("namespace") or namespace
    if name and _HOLDING & set(await target.finalizers(SECRETS, str(of_secret), str(name))):
        raise Waiting(
            "machine class credentials secret has not yet been acquired or released",
            retry_after=_REQUEUE_AFTER,
        )


async def force_machines(target: TargetCluster, namespace: str, machines: Iterable[Machine]) -> None:
    """Have machines deleted without a drain of their nodes."""
    await in_batches(
        target.merge(MACHINES, namespace, one.name, _FORCED) for one in machines if not one.forced
    )


async def remove_classes(target: TargetCluster, namespace: str, classes: Iterable[str]) -> None:
    """Delete these MachineClasses, and first their Secrets, which have their names.

    Secrets are never listed. A finalizer holds each as long as its class exists.
    """
    unwanted = sorted(classes)
    await in_batches(target.remove(SECRETS, namespace, name) for name in unwanted)
    await in_batches(target.remove(MACHINE_CLASSES, namespace, name) for name in unwanted)


def require_no_failure(deployments: Iterable[Object]) -> None:
    """Raise the failure of the first failed machine."""
    if failed := healthchecks.failed_machines(deployments):
        name, reason = failed[0]
        raise TransientError(f"machine {name} failed: {reason}", retry_after=FAILED_RETRY)


def _require_none(left: Iterable[int], retry_after: float | None = None) -> None:
    """Wait while objects are left; `left` counts them, in the order of `_KINDS`."""
    named = ", ".join(f"{count} {words}" for count, words in zip(left, _KINDS.values(), strict=True) if count)
    if named:
        text = f"waiting until the following machine resources have been deleted: {named}"
        raise Waiting(text, retry_after=retry_after)
