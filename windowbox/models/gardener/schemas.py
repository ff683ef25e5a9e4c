"""ControlPlane, Extension and Cluster: kinds whose models only serve their CustomResourceDefinitions."""

from __future__ import annotations

from windowbox.models.definitions import AGE, TYPE, Definition, state
from windowbox.models.extensions import ExtensionSpec, ExtensionStatus, Part, Raw, SecretReference
from windowbox.models.refs import CLUSTERS, CONTROL_PLANES, EXTENSIONS


class ControlPlaneSpec(ExtensionSpec):
    infrastructure_provider_status: Raw | None = None
    region: str
    secret_ref: SecretReference
    """The Secret with the provider's credentials."""


class ClusterSpec(Part):
    cloud_profile: Raw
    """The CloudProfile of the Shoot, as it is in the garden."""
    seed: Raw | None = None
    """The Seed of the Shoot. Absent where a Shoot hosts itself."""
    shoot: Raw
    """The Shoot, as it is in the garden."""


DEFINITIONS = (
    Definition(
        resource=CONTROL_PLANES,
        description="What a provider adds to the control plane of a Shoot.",
        spec=ControlPlaneSpec,
        status=ExtensionStatus,
        columns=(TYPE, state("Status"), AGE),
    ),
    Definition(
        resource=EXTENSIONS,
        description="Something that an extension adds to a Shoot, or to a seed.",
        spec=ExtensionSpec,
        status=ExtensionStatus,
        columns=(TYPE, state("Status"), AGE),
    ),
    Definition(
        resource=CLUSTERS,
        description="What extensions may know of a Shoot. Its name is the namespace of their objects.",
        spec=ClusterSpec,
        columns=(AGE,),
    ),
)
