"""The ManagedResources of a ControlPlane, as rendered charts: forms of the contract. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from workers.core.owned import managedresources
from workers.core.owned.managedresources import Bundle
from workers.core.owned.manifests import Manifest

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
    """The annotations of storage classes are ours alone; others may add some to what else there is."""
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
