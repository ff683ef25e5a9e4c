"""Drain: which Pods of a cordoned node are evicted or deleted before its machine, in which order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from windowbox.models import machinekeys
from windowbox.models.extensions import instant
from windowbox.models.objects import Object, mappings
from workers.machines.machine import nodes
from workers.machines.machine.specs import Timeouts

_MIRROR = "kubernetes.io/config.mirror"
_EVICTION_PAUSE = 20.0
"""Seconds that Gardener's own pauses between two tries: `maxEvictRetries` counts these."""
_SICK = 300.0
"""Seconds after which a node that does not work is emptied by force."""
_FORCED_TIME = 60.0


@dataclass(frozen=True)
class Mode:
    """How a node is emptied."""

    forced: bool
    """Pods are deleted at once, and the drain does not wait for them."""
    machine_too: bool
    """The machine goes even if Pods are left."""
    why: str = ""


@dataclass(frozen=True)
class Step:
    """What is to be done about the Pods of a node now."""

    evict: Sequence[Object]
    delete: Sequence[Object]
    waiting: Sequence[Object]
    """Those that are ending, or whose turn has not come."""

    @property
    def done(self) -> bool:
        return not (self.evict or self.delete or self.waiting)


def mode(machine: Object, node: Object | None, timeouts: Timeouts, asked: datetime, now: datetime) -> Mode:
    """B12-R1."""
    label = str(machine.labels.get(machinekeys.FORCE_DELETION, "")).lower()
    if label in ("1", "t", "true"):
        return Mode(True, True, f"label {machinekeys.FORCE_DELETION} is set")
    if now - asked > timedelta(seconds=timeouts.drain):
        return Mode(True, True, f"the node was not empty after {timeouts.drain / 60:g} minutes")
    if node is not None and (why := sick(node, now)):
        return Mode(True, True, why)
    return Mode(False, False)


def sick(node: Object, now: datetime) -> str:
    """Why nothing is to be expected of the node's kubelet; empty if it works."""
    for one in nodes.conditions(node):
        wrong = {"Ready": one["status"] != "True", "ReadonlyFilesystem": one["status"] != "False"}
        since = instant(one.get("lastTransitionTime"))
        if wrong.get(one["type"]) and since and (now - since).total_seconds() > _SICK:
            return f"node condition {one['type']} has been {one['status']} for more than 5 minutes"
    return ""


def overdue(asked: datetime, timeouts: Timeouts, now: datetime) -> bool:
    """Whether not even those who end take their time any more."""
    return (now - asked).total_seconds() > timeouts.drain + _FORCED_TIME


def retries(timeouts: Timeouts) -> int:
    """How often an eviction is tried before the Pod is deleted (B12-R2)."""
    return min(timeouts.evict_retries, int(timeouts.drain / _EVICTION_PAUSE))


def evicted_until(asked: datetime, timeouts: Timeouts) -> datetime:
    """From when on Pods that nobody lets go are deleted: that is how long the tries last."""
    return asked + timedelta(seconds=retries(timeouts) * _EVICTION_PAUSE)


def candidates(pods: Sequence[Object]) -> list[Object]:
    """The Pods that have to leave: not those that come with every node."""
    return [pod for pod in pods if not _is_mirror(pod) and not _is_of_daemon_set(pod) and not _ended(pod)]


def step(pods: Sequence[Object], chosen: Mode, *, evicting: bool) -> Step:
    """What happens to these Pods, all of them candidates. `evicting`: budgets are honoured still."""
    ending = [pod for pod in pods if pod.deleting]
    standing = [pod for pod in pods if not pod.deleting]
    if chosen.forced:
        return Step((), pods, ())
    if not evicting:
        return Step((), standing, ending)
    plain = [pod for pod in standing if not claims(pod)]
    # A volume is on one node at a time: Pods that have one leave one after the other, the least important
    # first.
    stateful = sorted((pod for pod in standing if claims(pod)), key=lambda pod: (_priority(pod), pod.name))
    busy = any(claims(pod) for pod in ending)
    first = [] if busy else stateful[:1]
    return Step([*plain, *first], (), [*ending, *stateful[len(first) :]])


def claims(pod: Object) -> bool:
    """Whether the Pod has persistent volumes."""
    return any(one.get("persistentVolumeClaim") for one in mappings(pod.spec.get("volumes")))


def _is_mirror(pod: Object) -> bool:
    return _MIRROR in pod.annotations


def _is_of_daemon_set(pod: Object) -> bool:
    owners = pod.metadata.get("ownerReferences") or ()
    return any(
        isinstance(one, Mapping) and one.get("controller") and one.get("kind") == "DaemonSet"
        for one in owners
    )


def _ended(pod: Object) -> bool:
    """Pods that have ended hold nothing; they go with their node."""
    return pod.status.get("phase") in ("Succeeded", "Failed")


def _priority(pod: Object) -> int:
    found: Any = pod.spec.get("priority")
    return found if isinstance(found, int) else 0
