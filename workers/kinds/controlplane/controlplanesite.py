"""The control plane of a Shoot, from its Cluster, and the forms of its ManagedResources. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from windowbox.models.gardener import cloudprofile
from windowbox.models.objects import Object, mapping
from workers.core.lifecycle import shootfacts
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.core.owned import managedresources
from workers.core.owned.managedresources import Bundle
from workers.core.owned.manifests import Manifest

GENERIC_KUBECONFIG = "generic-token-kubeconfig"
"""The Secret with a kubeconfig without credentials, where the Cluster names none."""
_ANNOTATION = f"{GENERIC_KUBECONFIG}.secret.gardener.cloud/name"


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
        """Whether the Shoot hibernates, and is neither deleted nor migrated."""
        migrating = self.raw_shoot.last_operation.get("type") == "Migrate"
        return self.shoot.hibernation_enabled and not self.deleting and not migrating


def site(cluster: Object) -> Site:
    """The control plane of a Cluster's Shoot."""
    shoot = Object(mapping(cluster.spec.get("shoot")))
    facts = shootfacts.facts(cluster)
    shootfacts.check_technical_id(facts, cluster.name)
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


WEBHOOKS = "extension-controlplane-shoot-webhooks"
CONFIGURATION = "extension-controlplane-configuration-seed"
SEED = "extension-controlplane-seed"
SHOOT = "extension-controlplane-shoot"
STORAGE = "extension-controlplane-storageclasses"

_CHARTS = {
    CONFIGURATION: "cloud-provider-config",
    SEED: "seed-controlplane",
    SHOOT: "shoot-system-components",
    STORAGE: "shoot-storageclasses",
}
"""The key of the data."""


def for_seed(name: str, namespace: str, objects: Iterable[Manifest]) -> Bundle:
    data = {_CHARTS[name]: managedresources.plain(objects)}
    return Bundle(name, namespace, data, class_="seed", prefix="")


def for_shoot(name: str, namespace: str, objects: Iterable[Manifest]) -> Bundle:
    """Annotations of storage classes are overwritten; other objects keep those of others."""
    options = {
        "injectLabels": managedresources.NO_CLEANUP,
        "keepObjects": False,
        "forceOverwriteAnnotations": name == STORAGE,
    }
    return Bundle(
        name, namespace, {_CHARTS[name]: managedresources.plain(objects)}, prefix="", options=options
    )


def webhooks(namespace: str, objects: Iterable[Manifest]) -> Bundle:
    """The configurations of webhooks in the Shoot."""
    return Bundle(WEBHOOKS, namespace, managedresources.packed(objects), prefix="", options={})


def is_data_of(secret_name: str, name: str) -> bool:
    """Whether a Secret holds, or held, the objects of a ManagedResource of ours."""
    return re.fullmatch(rf"{re.escape(name)}(-[0-9a-f]{{8}})?", secret_name) is not None
