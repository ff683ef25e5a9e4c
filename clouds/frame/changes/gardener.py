"""What Gardener itself does with updates of Shoots, whatever the cloud."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clouds.frame.changes.effects import WORKERS, Kind, Rule, Rules
from clouds.frame.pools import IN_PLACE
from clouds.frame.problems import Problem, forbidden, invalid, unchanged
from windowbox.models import constraints
from windowbox.models.objects import mapping, mappings

_IMMUTABLE = (
    "region",
    "provider.type",
    "networking.type",
    "networking.ipFamilies",
    "networking.pods",
    "networking.services",
    "dns.domain",
    "exposureClassName",
    "controlPlane.highAvailability.failureTolerance.type",
)
"""Once they are set."""
_OF_IN_PLACE = ("machine.type", "machine.image.name", "cri.name", "volume")
"""Fields of pools whose nodes are updated in place, which only a new machine could have."""
OPERATION = "gardener.cloud/operation"
_ROLLING = ("rotate-credentials-start", "rotate-ca-start", "rotate-serviceaccount-key-start")


def problems(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Problem]:
    """Updates that the API server of Gardener refuses. The objects are as they were sent."""
    for path in _IMMUTABLE:
        if (before := _at(old["spec"], path)) is not None:
            yield from unchanged(f"spec.{path}", _at(new["spec"], path), before)
    yield from _bindings(new["spec"], old["spec"])
    pools, stored = (mappings(_at(one, WORKERS)) for one in (new, old))
    if bool(pools) != bool(stored):
        yield forbidden(WORKERS, "a Shoot cannot get its first workers, or lose all of them")
    yield from _version(_at(new, "spec.kubernetes.version"), _at(old, "spec.kubernetes.version"), "spec", 1)
    by_name = {one.get("name"): one for one in stored}
    for i, pool in enumerate(pools):
        if (before := by_name.get(pool.get("name"))) is not None:
            yield from _pool(pool, before, f"{WORKERS}[{i}]")


def _bindings(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Problem]:
    """A Shoot may move from a SecretBinding to a CredentialsBinding, and from one of these to another."""
    name, former = "credentialsBindingName", "secretBindingName"
    if old.get(former) and (new.get(former) or not new.get(name)):
        yield from unchanged(f"spec.{former}", new.get(former), old[former])
    if old.get(name) and not new.get(name):
        yield forbidden(
            f"spec.{name}", f"credentials cannot be taken away: set it to {old[name]!r:.99} again"
        )


def _pool(new: Mapping[str, Any], old: Mapping[str, Any], path: str) -> Iterator[Problem]:
    yield from _version(_at(new, "kubernetes.version"), _at(old, "kubernetes.version"), path, 99)
    strategy, before = new.get("updateStrategy"), old.get("updateStrategy")
    if (strategy in IN_PLACE) != (before in IN_PLACE):
        detail = "cannot change between rolling and in-place updates: make another pool"
        yield invalid(f"{path}.updateStrategy", strategy, detail)
    elif strategy in IN_PLACE:
        for name in _OF_IN_PLACE:
            yield from unchanged(f"{path}.{name}", _at(new, name), _at(old, name))


def _version(new: Any, old: Any, path: str, most: int) -> Iterator[Problem]:
    """Versions only rise, by so many minors at once."""
    if not new or not old:
        return
    where = f"{path}.kubernetes.version"
    after, before = (constraints.version(str(one)) for one in (new, old))
    if after < before:
        yield forbidden(where, f"a version cannot be lowered: leave it at {old}")
    elif after[1] > before[1] + most:
        yield forbidden(where, f"a version cannot skip a minor one: set {before[0]}.{before[1] + 1} first")


def _at(given: Any, path: str) -> Any:
    for name in path.split("."):
        given = mapping(given).get(name)
    return given


def _in_place(why: str) -> list[Rule]:
    return [Rule(Kind.IN_PLACE, why)]


_AT_ONCE = _in_place("nodes get it at once, and no machine is replaced")
_AGENT = _in_place("gardener-node-agent brings it to the nodes that run")
_CONTROLLERS = _in_place("the controllers of machines read it; no machine is replaced")
_UPDATES = _in_place("the next update replaces so many machines at once")
_LATER = _in_place("no input of the hash: machines that are made later get it, others stay as they are")
RULES: Rules = {
    "spec.cloudProfile": _in_place("images and types of machines are looked up there"),
    "spec.cloudProfileName": _in_place("images and types of machines are looked up there"),
    "spec.credentialsBindingName": _in_place("the next runs use these credentials"),
    "spec.secretBindingName": _in_place("the next runs use the credentials of the other binding"),
    "spec.hibernation.enabled": [
        Rule(Kind.REMOVES, "all machines of the Shoot", when=lambda old, new: bool(new)),
        Rule(Kind.ADDS, "the Shoot wakes up with the minimum of each pool", when=lambda old, new: not new),
    ],
    "spec.kubernetes": _in_place("components of the control plane and of nodes are updated"),
    "spec.networking": _in_place("components of the network are updated"),
    "spec.provider.controlPlaneConfig": _in_place("components of the control plane are updated; nodes stay"),
    "spec.provider.infrastructureConfig": _in_place("the next run of the Infrastructure changes it"),
    "spec.seedName": _in_place("the control plane moves to another Seed; nodes stay"),
    WORKERS: _in_place("pools may stand in any order"),
    f"{WORKERS}[].annotations": _AT_ONCE,
    f"{WORKERS}[].caBundle": _AGENT,
    f"{WORKERS}[].clusterAutoscaler": _CONTROLLERS,
    f"{WORKERS}[].dataVolumes": _LATER,
    f"{WORKERS}[].kubeletDataVolumeName": _LATER,
    f"{WORKERS}[].kubernetes": _AGENT,
    f"{WORKERS}[].labels": _AT_ONCE,
    f"{WORKERS}[].machine": _LATER,
    f"{WORKERS}[].machineControllerManager": _CONTROLLERS,
    f"{WORKERS}[].maximum": _in_place("the autoscaler may add machines up to it"),
    f"{WORKERS}[].maxSurge": _UPDATES,
    f"{WORKERS}[].maxUnavailable": _UPDATES,
    f"{WORKERS}[].minimum": _in_place("the autoscaler may remove idle machines down to it"),
    f"{WORKERS}[].priority": _CONTROLLERS,
    f"{WORKERS}[].providerConfig": _LATER,
    f"{WORKERS}[].sysctls": _AGENT,
    f"{WORKERS}[].systemComponents": _CONTROLLERS,
    f"{WORKERS}[].taints": _AT_ONCE,
    f"{WORKERS}[].updateStrategy": _UPDATES,
    f"{WORKERS}[].volume": _LATER,
    f"{WORKERS}[].zones": _LATER,
}
ANNOTATIONS: Rules = {
    OPERATION: [
        Rule(
            Kind.ROLLS,
            "the start of a rotation is an input of the hash",
            "ALL-Z4",
            lambda old, new: new in _ROLLING,
        )
    ],
}
