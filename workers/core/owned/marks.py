"""Marks: an owner annotation on the objects that windowbox creates in provider clusters.

By it `workers/core/owned/ownedorphans.py` finds objects whose owner is gone, even if the bus was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from windowbox.models.objects import Object
from windowbox.models.refs import (
    BASTIONS,
    ENDPOINT_SLICES,
    EXPOSURES,
    INFRASTRUCTURES,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    SERVICES,
    ObjectRef,
    SecretKey,
)

ANNOTATION = "windowbox/made-for"

OWNERS: Mapping[str, frozenset[str]] = {
    INFRASTRUCTURES.id: frozenset({NAMESPACES.id}),
    BASTIONS.id: frozenset({PODS.id, SERVICES.id, NETWORK_POLICIES.id}),
    EXPOSURES.id: frozenset({SERVICES.id, ENDPOINT_SLICES.id}),
}
"""By kind of owner: the kinds of its objects in provider clusters among which orphans are found.

The policies and address pools of an Infrastructure are garbage collected with its namespace. Machines are
missing: their Pods stay while a Shoot is migrated, and `workers/machines/machine` finds their orphans.
"""


class Mark(NamedTuple):
    """The owner of an object in a provider cluster."""

    installation: str
    """The uid of the runtime cluster's namespace kube-system: others may use the same provider cluster."""
    home: str
    """The uid of the owner's cluster: its id may be reused for another cluster."""
    owner: ObjectRef
    uid: str
    """Of the owner."""
    secret: SecretKey
    """The Secret in the owner's cluster with which the object was created."""

    def same_owner(self, other: Mark) -> bool:
        """Whether both name the same owner, perhaps with another uid or Secret."""
        return self[:3] == other[:3]

    def __str__(self) -> str:
        secret = self.secret.namespace, self.secret.name
        return "/".join((self.installation, self.home, *self.owner, self.uid, *secret))


def parsed(object: Object) -> Mark | None:
    """The mark of an object; None if it is invalid: users of provider clusters may write anything."""
    return parse(str(object.annotations.get(ANNOTATION, "")))


def parse(text: str) -> Mark | None:
    parts = text.split("/")
    if len(parts) != 9 or not all(parts):
        return None
    installation, home, cluster, kind, namespace, name, uid, *secret = parts
    owner, key = ObjectRef(cluster, kind, namespace, name), SecretKey(namespace=secret[0], name=secret[1])
    return Mark(installation, home, owner, uid, key) if kind in OWNERS else None
