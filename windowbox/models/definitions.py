"""What a CustomResourceDefinition is made from."""

from __future__ import annotations

from dataclasses import dataclass

from windowbox.models.extensions import Part
from windowbox.models.refs import Resource


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"


@dataclass(frozen=True, slots=True)
class Definition:
    """A kind that the API server serves. Models list theirs as `DEFINITIONS`."""

    resource: Resource
    description: str
    spec: type[Part]
    columns: tuple[Column, ...]
    status: type[Part] | None = None
    spec_required: bool = True


AGE = Column("Age", ".metadata.creationTimestamp", "date")
TYPE = Column("Type", ".spec.type")
REGION = Column("Region", ".spec.region")


def state(name: str) -> Column:
    """The state of the last operation."""
    return Column(name, ".status.lastOperation.state")
