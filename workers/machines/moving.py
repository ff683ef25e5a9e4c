"""Whether the machines of a Worker are being handed over to another seed, or from one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object, mapping

_REQUESTS = ("migrate", "restore", "wait-for-state")


def is_leaving(worker: Object) -> bool:
    """Whether the Worker moves to another seed: its objects are deleted here, its machines stay."""
    return leaves(worker.annotations.get(OPERATION), worker.last_operation)


def shoot_is_leaving(cluster: Object) -> bool:
    """Whether the Shoot of a Cluster moves to another seed.

    gardenlet writes it there, and deletes Worker and Machines at the same time.
    """
    status = mapping(mapping(cluster.spec.get("shoot")).get("status"))
    return mapping(status.get("lastOperation")).get("type") == "Migrate"


def leaves(operation: object, last: Mapping[str, Any]) -> bool:
    """Whether a Worker with this requested and this last operation moves to another seed."""
    return operation == "migrate" or last.get("type") == "Migrate"


def moves(operation: object, last: Mapping[str, Any]) -> bool:
    """Whether it moves to another seed, or from one: its Pods may have no Machine for a while."""
    restoring = last.get("type") == "Restore" and last.get("state") != "Succeeded"
    return operation in _REQUESTS or last.get("type") == "Migrate" or restoring
