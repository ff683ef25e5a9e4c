"""Why a machine has not joined, in a sentence with the next step. Pure.

The reason follows from the machine's Pod, its node, and its kubelet's certificate requests.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windowbox.models.objects import Object, mapping, mappings
from workers.machines.machine import machinenodes

_LONGEST = 400
"""Characters of a message of another program."""
_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ErrImageInspect")
_CONTAINER = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PostStartHookError")
_PATIENCE = 15.0
"""Seconds that a step may take before it counts as stuck."""
_NETWORK = ("cni", "networkpluginnotready", "network plugin")


@dataclass(frozen=True)
class Reason:
    """Why, and what to do about it."""

    kind: str
    """One word for an Event."""
    text: str


@dataclass(frozen=True)
class Request:
    """A certificate request of the machine's kubelet."""

    name: str
    approved: bool = False
    denied: bool = False
    issued: bool = False


@dataclass(frozen=True)
class Facts:
    """The facts about a machine that has not joined."""

    pod: Object | None
    node: Object | None = None
    requests: Sequence[Request] = ()
    unlisted: str = ""
    """Why the requests could not be listed."""
    running_for: float | None = None
    """Seconds since the Pod's container started; None before that."""
    waiting_for: float = 0.0
    """Seconds since the Pod was created."""


def reason(facts: Facts) -> Reason | None:
    """Why the machine has not joined; None while nothing is wrong."""
    if (node := facts.node) is None:
        return (_of_pod(facts.pod, facts) or _not_registered(facts.pod, facts)) if facts.pod else None
    ready = machinenodes.condition(node, machinenodes.READY)
    if ready is None:
        return Reason("NodeNotReady", f"node {node.name} has registered, and has not said yet how it is")
    if ready["status"] == "True":
        if not machinenodes.awaits_critical_components(node):
            return None
        text = f"node {node.name} waits for its critical components: see the Pods on it that are not ready"
        return Reason("CriticalComponents", text)
    message = _cut(ready.get("message")) or str(ready.get("reason") or "no reason is given")
    if any(word in message.lower() for word in _NETWORK):
        return Reason(
            "NetworkMissing",
            f"node {node.name} has no Pod network yet ({message}): check the Pods of the Shoot's network "
            "plugin on it",
        )
    return Reason("NodeNotReady", f"node {node.name} is not ready ({message})")


def _of_pod(pod: Object, facts: Facts) -> Reason | None:
    """Why the Pod's container does not run."""
    if end := loss(pod):
        return Reason(end.kind, f"{end.text}; another is made in its place")
    if unscheduled := _unscheduled(pod):
        return Reason(
            "Unschedulable",
            f"Pod {pod.name} cannot be scheduled ({_cut(unscheduled.get('message'))}): make room on the "
            "nodes of the provider cluster, or use a smaller machine type or another zone",
        )
    container = _container(pod)
    state = mapping(container.get("state"))
    waiting, ended = mapping(state.get("waiting")), mapping(state.get("terminated"))
    message, why = _cut(waiting.get("message")), str(waiting.get("reason") or "")
    if why in _IMAGE:
        image = _cut(container.get("image")) or "of the machine"
        return Reason(
            "ImageNotPulled",
            f"image {image} cannot be pulled ({message or why}): check its name, and that the nodes of the "
            "provider cluster reach the registry",
        )
    if why in _CONTAINER:
        return Reason(
            "ContainerNotStarted", f"the container of Pod {pod.name} does not start ({message or why})"
        )
    if why == "CrashLoopBackOff":
        ended = ended or mapping(mapping(container.get("lastState")).get("terminated"))
    if ended:  # for example because the user data failed
        last_words, cause = _cut(ended.get("message")), str(ended.get("reason") or "")
        spoken = f", and said: {last_words}" if last_words else ""
        code = f"with exit code {ended.get('exitCode')}{f' ({cause})' if cause else ''}"
        log = f"see its log: {_kubectl(pod, 'logs')} --previous"
        remedy = "give it more memory" if cause == "OOMKilled" else log
        return Reason("MachineEnded", f"the machine in Pod {pod.name} ended {code}{spoken}: {remedy}")
    if facts.running_for is not None or facts.waiting_for < _PATIENCE:
        return None
    if not pod.spec.get("nodeName"):
        return Reason(
            "NotScheduled",
            f"Pod {pod.name} waits for a scheduler: check that kube-scheduler runs in the provider cluster",
        )
    return Reason(
        "PodNotStarted",
        f"Pod {pod.name} is on node {pod.spec['nodeName']}, but not running yet: see its Events with "
        + _kubectl(pod, "describe pod"),
    )


def has_ended(pod: Object) -> bool:
    """Whether the Pod has ended for good: its restart policy does not apply any more."""
    return pod.status.get("phase") in ("Failed", "Succeeded")


def loss(pod: Object) -> Reason | None:
    """How the Pod has ended for good; None if it has not."""
    if not has_ended(pod):
        return None
    why = str(pod.status.get("reason") or "")
    words = _cut(pod.status.get("message")) or why or "no reason is given"
    if why == "Evicted":
        return Reason(
            "PodEvicted",
            f"Pod {pod.name} was evicted ({words}): give its pool a larger volume or machine type, or the "
            "nodes of the provider cluster more of what ran out",
        )
    return Reason(
        "PodEnded", f"Pod {pod.name} has ended ({words}): see its Events and its node in the provider cluster"
    )


def gone(namespace: str, name: str) -> Reason:
    """The reason for a Pod that is gone from the provider cluster."""
    return Reason(
        "PodGone",
        f"Pod {namespace}/{name} is gone from the provider cluster: somebody deleted it, or the node that "
        "it ran on; see that cluster's Events and audit log",
    )


def _not_registered(pod: Object, facts: Facts) -> Reason | None:
    """Why the machine's kubelet has not registered its node."""
    if denied := [_shown(one.name) for one in facts.requests if one.denied]:
        return Reason(
            "RequestDenied", f"certificate request {denied[0]} of the kubelet was denied: see who denied it"
        )
    if waiting := [_shown(one.name) for one in facts.requests if not one.approved]:
        return Reason(
            "RequestNotApproved",
            f"certificate request {waiting[0]} of the kubelet is not approved: check the csrapproving "
            f"controller of the Shoot, or run kubectl certificate approve {waiting[0]} there",
        )
    if unsigned := [_shown(one.name) for one in facts.requests if not one.issued]:
        return Reason(
            "RequestNotSigned",
            f"certificate request {unsigned[0]} is approved, but not signed: check the csrsigning controller "
            "of the Shoot",
        )
    if facts.running_for is None or facts.running_for < _PATIENCE:
        return None
    if facts.unlisted:
        return Reason(
            "RequestsNotListed",
            f"Pod {pod.name} has no node yet, and certificate requests of the Shoot, which may "
            f"show why, cannot be listed: {_cut(facts.unlisted)}",
        )
    if facts.requests:
        return Reason(
            "NotRegistered",
            f"the kubelet in Pod {pod.name} has its certificate, but has not registered a node: see "
            f"its log with {_kubectl(pod, 'exec')} -- journalctl -u kubelet",
        )
    return Reason(
        "NotHeardOf",
        f"Pod {pod.name} runs, but the Shoot's API server has not heard of it: its user data failed, "
        f"or it does not reach the API server; see {_kubectl(pod, 'exec')} -- journalctl",
    )


def running_since(pod: Object) -> Any:
    """When the machine's container started: a timestamp from the Pod's status."""
    return mapping(mapping(_container(pod).get("state")).get("running")).get("startedAt")


def compared(pod: Object) -> Any:
    """The part of a Pod that a reason depends on."""
    container = _container(pod)
    state = mapping(container.get("state"))
    states = {name: mapping(one).get("reason") for name, one in state.items()}
    phase, scheduled = pod.status.get("phase"), bool(pod.spec.get("nodeName"))
    return pod.uid, pod.deleting, phase, states, _unscheduled(pod), scheduled


def _container(pod: Object) -> Mapping[str, Any]:
    found = mappings(pod.status.get("containerStatuses"))
    return next((one for one in found if one.get("name") == "node"), {})


def _unscheduled(pod: Object) -> Mapping[str, Any] | None:
    """The condition of a Pod that no node can take."""
    listed = mappings(pod.status.get("conditions"))
    key = ("PodScheduled", "False")
    return next((one for one in listed if (one.get("type"), one.get("status")) == key), None)


def _shown(name: str) -> str:
    """The name of a certificate request, quoted for a shell: the machine may choose any name."""
    return shlex.quote("".join(letter for letter in _cut(name) if letter.isprintable()))


def _kubectl(pod: Object, verb: str) -> str:
    """A kubectl command for a machine's Pod, with its namespace: people copy it from another one."""
    return f"kubectl -n {pod.namespace} {verb} {pod.name}"


def _cut(text: Any) -> str:
    """A message of another program, on one line and truncated."""
    words = " ".join(str(text or "").split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
