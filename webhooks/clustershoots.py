"""Reads the Shoot in a Cluster."""

from __future__ import annotations

from collections.abc import Mapping

from webhooks.review import Denied, Lookup, about
from webhooks.shapes import given, objects, part
from windowbox.models.objects import Json
from windowbox.models.refs import CLUSTERS


def lookup(name: str) -> Lookup:
    """The Cluster of that name."""
    return Lookup(CLUSTERS, "", name)


def shoot(cluster: Json, name: str) -> Json:
    """The Shoot in the Cluster. Denied without one."""
    with about(f"Cluster {name}"):
        found = part(cluster, "spec", "shoot")
    if not found:
        raise Denied(f"Cluster {name} contains no Shoot: gardenlet has to write it first")
    return found


def shoot_in(name: str) -> str:
    """The words for the Shoot in the Cluster of that name, in denials."""
    return f"the Shoot in Cluster {name}"


def workers(shoot: Json) -> list[Json]:
    """The worker pools of a Shoot."""
    return objects(part(shoot, "spec", "provider"), "workers")


def self_hosted(shoot: Json) -> bool:
    """Whether the control plane runs on nodes of the Shoot itself."""
    return any(given(worker, "controlPlane", Mapping, "an object") for worker in workers(shoot))


def managed_infrastructure(shoot: Json) -> bool:
    """Whether Gardener creates the Shoot's infrastructure."""
    spec = part(shoot, "spec")
    # Even an empty name counts, as for Gardener.
    names = ("credentialsBindingName", "secretBindingName")
    return any(given(spec, name, str, "a string") for name in names)
