"""The ControlPlane: what a provider adds to the control plane of a Shoot."""

from __future__ import annotations

from windowbox.models.definitions import AGE, TYPE, Definition, state
from windowbox.models.extensions import ExtensionSpec, ExtensionStatus, Raw, SecretReference
from windowbox.models.refs import CONTROL_PLANES


class ControlPlaneSpec(ExtensionSpec):
    infrastructure_provider_status: Raw | None = None
    region: str
    secret_ref: SecretReference
    """The Secret with the provider's credentials."""


DEFINITIONS = (
    Definition(
        resource=CONTROL_PLANES,
        description="What a provider adds to the control plane of a Shoot.",
        spec=ControlPlaneSpec,
        status=ExtensionStatus,
        columns=(TYPE, state("Status"), AGE),
    ),
)
