"""Removes the machines of a Worker, and all they were made from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windowbox.errors import Waiting
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from windowbox.models.refs import (
    MACHINE_CLASSES,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    SECRETS,
    Resource,
)
from workers.core.owned.targets import TargetCluster, in_batches
from workers.machines.worker import failures
from workers.machines.worker.observed import Machine, Observed

_FORCED = {"metadata": {"labels": {keys.FORCE_DELETION: "True"}}}
_HOLDING = frozenset((keys.FINALIZER, keys.SECRET_FINALIZER))
_KINDS = {
    MACHINES: "machines",
    MACHINE_SETS: "machine sets",
    MACHINE_DEPLOYMENTS: "machine deployments",
    MACHINE_CLASSES: "machine classes",
}
_REQUEUE_AFTER = 1.0
"""Seconds until what no event tells of is looked at again."""


async def delete(worker: Object, target: TargetCluster, found: Observed) -> None:
    """Remove everything, whatever the spec asks for: no image and no Secret has to exist for that.

    Classes and their Secrets stay until the last machine is gone, which cannot be removed without them.
    """
    namespace = worker.namespace
    await force_machines(target, namespace, found.machines)
    await _remove_machines(target, namespace, found)
    failures.require_none(found.deployments.values())
    if not (found.machines or found.sets or found.deployments):
        await remove_classes(target, namespace, found.classes)
    known = (found.machines, found.sets, found.deployments, found.classes)
    _require_none(map(len, known))
    await _require_gone(target, namespace)
    await _require_released(worker, target)


async def force_machines(target: TargetCluster, namespace: str, machines: Iterable[Machine]) -> None:
    """Have machines deleted without their nodes being emptied first."""
    await in_batches(
        target.merge(MACHINES, namespace, one.name, _FORCED) for one in machines if not one.forced
    )


async def remove_classes(target: TargetCluster, namespace: str, classes: Iterable[str]) -> None:
    """Delete these MachineClasses, and first their Secrets, which have their names.

    Secrets are never listed. A finalizer holds each as long as its class is there.
    """
    unwanted = sorted(classes)
    await in_batches(target.remove(SECRETS, namespace, name) for name in unwanted)
    await in_batches(target.remove(MACHINE_CLASSES, namespace, name) for name in unwanted)


async def _remove_machines(target: TargetCluster, namespace: str, found: Observed) -> None:
    """MachineDeployments take their sets and machines with them; those that have no owner go afterwards."""
    if found.deployments:
        deployments = (one.name for one in found.deployments.values() if not one.deleting)
        return await _remove(target, MACHINE_DEPLOYMENTS, namespace, deployments)
    if found.sets:
        return await _remove(
            target, MACHINE_SETS, namespace, (one.name for one in found.sets if not one.deleting)
        )
    machines = (one.name for one in found.machines if not one.deleting)
    return await _remove(target, MACHINES, namespace, machines)


async def _remove(target: TargetCluster, resource: Resource, namespace: str, names: Iterable[str]) -> None:
    await in_batches(target.remove(resource, namespace, name) for name in names)


async def _require_gone(target: TargetCluster, namespace: str) -> None:
    """What the bus does not know of, the API may still have: of a bus made anew, nothing may be concluded."""
    left = [len(await target.names_labelled(kind, namespace, {})) for kind in _KINDS]
    _require_none(left, retry_after=_REQUEUE_AFTER)


async def _require_released(worker: Object, target: TargetCluster) -> None:
    """Whoever made the machines holds on to the provider's credentials until the last is gone."""
    reference: Any = worker.spec.get("secretRef") or {}
    name, namespace = reference.get("name"), reference.get("namespace") or worker.namespace
    if name and _HOLDING & set(await target.finalizers(SECRETS, str(namespace), str(name))):
        raise Waiting(
            "machine class credentials secret has not yet been acquired or released",
            retry_after=_REQUEUE_AFTER,
        )


def _require_none(left: Iterable[int], retry_after: float | None = None) -> None:
    """Wait while there are objects left; `left` counts them, in the order of `_KINDS`."""
    named = ", ".join(f"{count} {words}" for count, words in zip(left, _KINDS.values(), strict=True) if count)
    if named:
        text = f"waiting until the following machine resources have been deleted: {named}"
        raise Waiting(text, retry_after=retry_after)
