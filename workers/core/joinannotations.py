"""The annotations of a Namespace by which its cluster joins."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bus.clusters.registry import MachinePlace, Member
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, NODES, RUNTIME, SERVICES, SecretKey

KUBECONFIG = "cluster.windowbox/kubeconfig"
"""Annotation: the Secret of the Namespace with the kubeconfig, and its key: `SECRET[/KEY]`."""
JOIN = "cluster.windowbox/join"
"""Label: `true` if the Secret has its usual name."""
MACHINES = "cluster.windowbox/machines"
"""Annotation: the Namespace of the machine Pods; by default that of the control plane."""

_SECRET = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_KEY = re.compile(r"[A-Za-z0-9._-]{1,253}")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Unusable:
    """Invalid annotations."""

    why: str


def requested_member(namespace: Object, secret: str) -> Member | Unusable | None:
    """The member that the Namespace requests, if any. `secret` is the default name."""
    marked = namespace.annotations.get(KUBECONFIG)
    if namespace.deleting or (marked is None and namespace.labels.get(JOIN) != "true"):
        return None
    if namespace.name == RUNTIME:
        return Unusable(f"no other cluster can be called {RUNTIME}: use a Namespace of another name")
    name, separator, key = (secret if marked is None else str(marked)).strip().partition("/")
    if not _SECRET.fullmatch(name) or (separator and not _KEY.fullmatch(key)):
        return Unusable(f"annotation {KUBECONFIG} is {_shown(marked)}: write SECRET or SECRET/KEY")
    machines = str(namespace.annotations.get(MACHINES, namespace.name)).strip()
    if not _NAMESPACE.fullmatch(machines):
        return Unusable(f"annotation {MACHINES} is {_shown(machines)}: write the name of a Namespace")
    place = SecretKey(namespace=namespace.name, name=name, **({"key": key} if key else {}))
    return Member(
        id=namespace.name, secret=place, machines=MachinePlace(namespace=machines), origin="namespace"
    )


def with_kinds(member: Member, *, direct: bool) -> Member:
    """The member with the kinds to watch. Pods of `direct` members are reached without node ports."""
    kinds = (SERVICES.id, NODES.id, *((ENDPOINT_SLICES.id,) if direct else ()))
    return member.model_copy(update={"kinds": kinds})


def _shown(value: object) -> str:
    text = str(value)
    return repr(text if len(text) <= 64 else f"{text[:64]}…")
