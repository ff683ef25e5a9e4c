"""Settings of clouds: types of providers besides `local`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from windowbox.models.clouds import CLOUD_TYPES
from windowbox.models.refs import SecretKey
from windowbox.settings.section import Section


def _known(type_: str) -> str:
    if type_ not in CLOUD_TYPES:
        raise ValueError(f"unknown cloud {type_!r:.50}; known are {', '.join(CLOUD_TYPES)}")
    return type_


CloudType = Annotated[
    str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": list(CLOUD_TYPES)})
]


class CloudSettings(Section):
    """Types of providers besides `local`."""

    types: tuple[CloudType, ...] = Field((), description="Clouds that are served besides type local.")
    provider: str = Field(
        "garden/windowbox-clouds",
        pattern=r"^[a-z0-9][-.a-z0-9]*/[a-z0-9][-.a-z0-9]*$",
        description="NAMESPACE/NAME of the Secret with the kubeconfig of the cluster where clouds' machines "
        "run: their own Secrets have credentials of the cloud instead.",
    )
    image: str = Field(
        "",
        pattern=r"^[!-~]{0,1000}$",
        description="Container image of clouds' machines, whichever image of the cloud they ask for.",
    )

    @property
    def provider_secrets(self) -> frozenset[SecretKey]:
        """The Secret of `provider`, if there are clouds."""
        return frozenset([self.provider_secret] if self.types else ())

    @property
    def provider_secret(self) -> SecretKey:
        namespace, _, name = self.provider.partition("/")
        return SecretKey(namespace=namespace, name=name)
