"""Rights as RBAC rules, and the rights that windowbox needs in a cluster that joins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from windowbox.kinds import KINDS, POOLS, READ, WATCH
from windowbox.models.refs import ENDPOINT_SLICES, NODES, SERVICES, Resource

EVENTS = Resource("", "v1", "events", "Event")
_VERBS = ("get", "list", "watch", "create", "patch", "delete")

Right = tuple[Resource, str, Collection[str]]
"""A kind, with a subresource or an empty text, and verbs."""
Rights = Iterator[Right]


def listed(role: str) -> Rights:
    """The rights of a role in the rows of the table."""
    for row in KINDS:
        yield from ((right.resource, right.part, right.verbs) for right in row.rights if right.role == role)


def member() -> Rights:
    """In a Shoot that joins: its Services become load balancers, its machines become nodes."""
    yield from ((watched, "", WATCH) for watched in (SERVICES, NODES, ENDPOINT_SLICES))
    yield from ((one.resource, one.part, one.verbs) for one in POOLS["loadbalancer"].rights)
    yield EVENTS, "", ("create", *READ, "patch")
    yield from listed("target")


def rules(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """Rights as rules of a ClusterRole: one rule for all kinds of a group with the same names and verbs."""
    verbs: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for resource, part, allowed in rights:
        plural = f"{resource.plural}/{part}" if part else resource.plural
        for verb in allowed:
            # RBAC cannot limit `create` to names.
            verbs[resource.group, plural, "" if verb == "create" else resource.named].add(verb)
    names: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for group, plural, name in sorted(verbs):
        sorted_verbs = tuple(verb for verb in _VERBS if verb in verbs[group, plural, name])
        names[group, plural, sorted_verbs].append(name)
    plurals: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, plural, sorted_verbs), of in names.items():
        plurals[group, () if "" in of else tuple(of), sorted_verbs].append(plural)
    return [
        {"apiGroups": [group], "resources": kinds, "verbs": list(allowed)}
        | ({"resourceNames": list(of)} if of else {})
        for (group, of, allowed), kinds in plurals.items()
    ]
