"""What a Cluster tells about the control plane of its Shoot, checked before anything is made of it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from windowbox.errors import Malformed, TransientError
from windowbox.models import cloudprofile
from windowbox.models.objects import Object, mapping
from workers.lifecycle import shoots
from workers.lifecycle.shoots import ShootFacts

GENERIC_KUBECONFIG = "generic-token-kubeconfig"
"""The Secret with a kubeconfig without credentials, where the Cluster names none."""
_ANNOTATION = f"{GENERIC_KUBECONFIG}.secret.gardener.cloud/name"
_TECHNICAL_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,55}[a-z0-9])?")
"""What is a namespace's name with `infra-` before it, too."""


@dataclass(frozen=True)
class Site:
    """The control plane of one Shoot."""

    namespace: str
    shoot: ShootFacts
    raw_shoot: Object
    """The Shoot as the garden has it."""
    seed_version: str
    """Of Kubernetes; empty if it is not known."""
    shoot_version: str
    generic_kubeconfig: str
    """The name of a Secret."""

    @property
    def hosted(self) -> bool:
        """Whether the control plane runs in a seed."""
        return self.namespace.startswith("shoot-")

    @property
    def deleting(self) -> bool:
        return self.raw_shoot.deleting

    @property
    def may_sleep(self) -> bool:
        """Whether the Shoot is to be hibernated, and nothing else is done with it."""
        migrating = self.raw_shoot.last_operation.get("type") == "Migrate"
        return self.shoot.hibernation_enabled and not self.deleting and not migrating


def site(cluster: Object) -> Site:
    """The control plane that a Cluster is about."""
    shoot = Object(mapping(cluster.spec.get("shoot")))
    facts = shoots.facts(cluster)
    if not facts.technical_id:
        raise TransientError(f"the Cluster {cluster.name} does not tell the technical id of its Shoot yet")
    if not _TECHNICAL_ID.fullmatch(facts.technical_id):
        raise Malformed(
            f"status.technicalID of the Shoot in the Cluster {cluster.name} is {facts.technical_id!r:.80}: "
            "make it at most 57 lower-case letters, digits and hyphens, as in names of namespaces"
        )
    seed = Object(mapping(cluster.spec.get("seed")))
    return Site(
        namespace=cluster.name,
        shoot=facts,
        raw_shoot=shoot,
        seed_version=str(seed.status.get("kubernetesVersion") or ""),
        shoot_version=str(mapping(shoot.spec.get("kubernetes")).get("version") or ""),
        generic_kubeconfig=str(cluster.annotations.get(_ANNOTATION) or GENERIC_KUBECONFIG),
    )


def balancer_image(cluster: Object) -> str | None:
    """Envoy's image. Malformed if the CloudProfile has no providerConfig, or one that cannot be read."""
    config = cloudprofile.config(cloudprofile.profile(cluster.spec))
    return config.load_balancer.image if config.load_balancer else None
