"""The Cluster: CloudProfile, Seed and Shoot, for extensions."""

from __future__ import annotations

from windowbox.models.definitions import AGE, Definition
from windowbox.models.extensions import Part, Raw
from windowbox.models.refs import CLUSTERS


class ClusterSpec(Part):
    cloud_profile: Raw
    """The CloudProfile of the Shoot, as it is in the garden."""
    seed: Raw | None = None
    """The Seed of the Shoot. Absent where a Shoot hosts itself."""
    shoot: Raw
    """The Shoot, as it is in the garden."""


DEFINITIONS = (
    Definition(
        resource=CLUSTERS,
        description="What extensions may know of a Shoot. Its name is the namespace of their objects.",
        spec=ClusterSpec,
        columns=(AGE,),
    ),
)
