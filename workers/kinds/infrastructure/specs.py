"""What an Infrastructure's spec asks for, checked before anything is made of it."""

from __future__ import annotations

from typing import NamedTuple

from windowbox.errors import Malformed
from windowbox.models.objects import Object
from windowbox.models.refs import SECRETS

_MAX_FIELDS = 5
"""So many fields are named: the first few tell what is meant."""


class ProviderSecret(NamedTuple):
    """Where the kubeconfig of the provider cluster is."""

    namespace: str
    name: str


def provider_secret(infrastructure: Object) -> ProviderSecret:
    secret = infrastructure.spec.get("secretRef") or {}
    name, namespace = secret.get("name"), secret.get("namespace")
    if not name:
        raise Malformed("spec.secretRef.name is not set: name the Secret with the provider's kubeconfig")
    found = ProviderSecret(str(namespace or infrastructure.namespace), str(name))
    for field, value in found._asdict().items():
        try:
            SECRETS.path(value)
        except Malformed:
            raise Malformed(
                f"spec.secretRef.{field} is {value!r:.80}: give the {field} of the Secret with the "
                "provider's kubeconfig"
            ) from None
    return found


def check_provider_config(infrastructure: Object) -> None:
    """Refuse what would be ignored: Infrastructures of type local cannot be configured."""
    if config := infrastructure.spec.get("providerConfig"):
        fields = ", ".join(f"{name!s:.80}: {config[name]!r:.80}" for name in sorted(config)[:_MAX_FIELDS])
        raise Malformed(
            f"spec.providerConfig of an Infrastructure of type local has no fields, but there are {fields}; "
            "remove spec.provider.infrastructureConfig from the Shoot"
        )
