"""Settings of clouds: types of providers besides `local`."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from windowbox.models.refs import SecretKey
from windowbox.settings.section import Section

CloudType = Literal["alicloud", "aws", "azure", "equinixmetal", "gcp", "openstack"]
CLOUD_TYPES: tuple[str, ...] = get_args(CloudType)


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
