"""What webhooks read in Clusters."""

from __future__ import annotations

from webhooks.review import Denied
from webhooks.shapes import objects, part, text
from windowbox.models.objects import Json


def shoot(cluster: Json, name: str) -> Json:
    """The Shoot in the Cluster. Without one the request is denied."""
    found = part(cluster, "spec", "shoot")
    if not found:
        raise Denied(f"Cluster {name} contains no Shoot: gardenlet has to write it first")
    return found


def workers(shoot: Json) -> list[Json]:
    """The worker pools of a Shoot."""
    return objects(part(shoot, "spec", "provider"), "workers")


def self_hosted(shoot: Json) -> bool:
    """Whether the control plane runs on nodes of the Shoot itself."""
    return any(worker.get("controlPlane") is not None for worker in workers(shoot))


def managed_infrastructure(shoot: Json) -> bool:
    """Whether Gardener creates the Shoot's infrastructure."""
    spec = part(shoot, "spec")
    return bool(text(spec, "credentialsBindingName") or text(spec, "secretBindingName"))
