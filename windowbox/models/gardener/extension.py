"""The Extension: something that an extension adds to a Shoot, or to a seed."""

from __future__ import annotations

from windowbox.models.definitions import AGE, TYPE, Definition, state
from windowbox.models.extensions import ExtensionSpec, ExtensionStatus
from windowbox.models.refs import EXTENSIONS

DEFINITIONS = (
    Definition(
        resource=EXTENSIONS,
        description="Something that an extension adds to a Shoot, or to a seed.",
        spec=ExtensionSpec,
        status=ExtensionStatus,
        columns=(TYPE, state("Status"), AGE),
    ),
)
