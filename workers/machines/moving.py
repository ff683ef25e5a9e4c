"""Whether the machines of a Worker are being handed over to another seed, or from one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object, mapping

_REQUESTS = ("migrate", "restore", "wait-for-state")


def is_leaving(worker: Object) -> bool:
    """To another seed: its objects are taken away here, and its machines stay as they are."""
    return leaves(worker.annotations.get(OPERATION), worker.last_operation)


def shoot_is_leaving(cluster: Object) -> bool:
    """The same, of a Cluster: gardenlet says so there, and deletes Worker and machines at the same time."""
    status = mapping(mapping(cluster.spec.get("shoot")).get("status"))
    return mapping(status.get("lastOperation")).get("type") == "Migrate"


def leaves(operation: object, last: Mapping[str, Any]) -> bool:
    """The same, of the operation that is asked for and the last one."""
    return operation == "migrate" or last.get("type") == "Migrate"


def moves(operation: object, last: Mapping[str, Any]) -> bool:
    """To another seed, or from one: then a Pod without a Machine may be nobody's for a while."""
    restoring = last.get("type") == "Restore" and last.get("state") != "Succeeded"
    return operation in _REQUESTS or last.get("type") == "Migrate" or restoring
