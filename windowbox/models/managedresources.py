"""The ManagedResource: objects in Secrets, for a resource manager to apply."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from windowbox.models.definitions import AGE, Column, Definition
from windowbox.models.extensions import Condition, Int64, ObjectReference, Part, Strings
from windowbox.models.refs import MANAGED_RESOURCES


class SecretName(Part):
    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: str = ""


class GroupKind(Part):
    group: str
    kind: str


class ManagedObject(ObjectReference):
    annotations: Strings | None = None
    labels: Strings | None = None


class ManagedResourceSpec(Part):
    class_: str | None = Field(None, alias="class")
    """Which resource manager applies it: seed, or nothing for that of the Shoot."""
    delete_persistent_volume_claims: bool | None = None
    equivalences: list[list[GroupKind]] | None = None
    """Kinds that are the same thing by different names."""
    force_overwrite_annotations: bool | None = None
    force_overwrite_labels: bool | None = None
    inject_labels: Strings | None = None
    keep_objects: bool | None = None
    """Whether the objects stay when the ManagedResource goes."""
    secret_refs: list[SecretName]


class ManagedResourceStatus(Part):
    conditions: list[Condition] | None = None
    observed_generation: Int64 | None = None
    resources: list[ManagedObject] | None = None
    secrets_data_checksum: str | None = None


DEFINITIONS = (
    Definition(
        resource=MANAGED_RESOURCES,
        description="Objects that a resource manager applies.",
        spec=ManagedResourceSpec,
        status=ManagedResourceStatus,
        spec_required=False,
        columns=(
            Column("Class", ".spec.class"),
            *(
                Column(name, f'.status.conditions[?(@.type=="Resources{name}")].status')
                for name in ("Applied", "Healthy", "Progressing")
            ),
            AGE,
        ),
    ),
)
