"""Definitions: the values from which CustomResourceDefinitions are generated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windowbox.models.extensions import Part
from windowbox.models.refs import Resource


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    """Columns above 0 are shown by `kubectl get --output=wide`."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A kind that the API server serves. Models list theirs as `DEFINITIONS`."""

    resource: Resource
    description: str
    spec: type[Part]
    columns: tuple[Column, ...]
    status: type[Part] | None = None
    spec_required: bool = True
    flat: bool = False
    """Whether the fields of `spec` stand beside `metadata`. Such a kind has no status."""
    subresources: Mapping[str, Any] = field(default_factory=dict)
    """Besides `status`."""


AGE = Column("Age", ".metadata.creationTimestamp", "date")
TYPE = Column("Type", ".spec.type")
REGION = Column("Region", ".spec.region")


def state(name: str) -> Column:
    """The state of the last operation."""
    return Column(name, ".status.lastOperation.state")
