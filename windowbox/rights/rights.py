"""Rights as RBAC rules, and the rights that windowbox needs in a cluster that joins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from windowbox.kinds import KINDS, POOLS, READ, WATCH
from windowbox.models.refs import ENDPOINT_SLICES, NODES, SERVICES, Resource

EVENTS = Resource("", "v1", "events", "Event")
_VERBS = ("get", "list", "watch", "create", "patch", "delete")

Rights = Iterator[tuple[Resource, str, Collection[str]]]
"""Kinds, each with a subresource or an empty text, and verbs."""


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


def rules(rights: Iterable[tuple[Resource, str, Collection[str]]]) -> list[dict[str, Any]]:
    """Rights as rules of a ClusterRole: one rule for all kinds of a group with the same verbs."""
    verbs: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for resource, part, allowed in rights:
        plural = f"{resource.plural}/{part}" if part else resource.plural
        for verb in allowed:
            # RBAC cannot limit `create` to names.
            verbs[resource.group, plural, "" if verb == "create" else resource.named].add(verb)
    rules: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for group, plural, name in sorted(verbs):
        sorted_verbs = tuple(verb for verb in _VERBS if verb in verbs[group, plural, name])
        rules[group, name, sorted_verbs].append(plural)
    return [
        {"apiGroups": [group], "resources": plurals, "verbs": list(allowed)}
        | ({"resourceNames": [name]} if name else {})
        for (group, name, allowed), plurals in rules.items()
    ]
