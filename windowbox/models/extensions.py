"""What all kinds of `extensions.gardener.cloud` have in common, as the API spells it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

OPERATION = "gardener.cloud/operation"
"""Annotation: what the client asks for (`reconcile`, `migrate`, `restore`, `wait-for-state`)."""
TIMESTAMP = "gardener.cloud/timestamp"
"""Annotation: when the client asked. It compares it with `lastOperation.lastUpdateTime`."""
ROLE = "gardener.cloud/role"
"""Label of namespaces; `shoot` marks the control plane of a Shoot."""
FORCE_DELETION = "confirmation.gardener.cloud/force-deletion"
"""Annotation of Shoots: let go of everything, even where that leaves orphans behind."""

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def instant(text: object) -> datetime | None:
    """The moment that an RFC 3339 text names, in UTC, or None if it names none."""
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def spelled(moment: datetime) -> str:
    """`moment` as status fields hold it: whole seconds, rounded down, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Part(BaseModel):
    """A part of an object: frozen, camelCase outside, tolerant of fields that a newer Gardener added."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)


class SecretReference(Part):
    name: str | None = None
    namespace: str | None = None


class LastOperation(Part):
    description: str
    last_update_time: datetime
    progress: int
    state: str
    type: str


class LastError(Part):
    description: str
    codes: list[str] | None = None
    last_update_time: datetime | None = None
    task_id: str | None = Field(None, alias="taskID")


class Condition(Part):
    type: str
    status: str
    last_transition_time: datetime
    last_update_time: datetime
    reason: str
    message: str
    codes: list[str] | None = None


class ResourceReference(Part):
    api_version: str | None = None
    kind: str
    name: str


class NamedResourceReference(Part):
    name: str
    resource_ref: ResourceReference


class ExtensionSpec(Part):
    type: str
    class_: str | None = Field(None, alias="class")
    provider_config: dict[str, Any] | None = None


class ExtensionStatus(Part):
    conditions: list[Condition] | None = None
    last_error: LastError | None = None
    last_operation: LastOperation | None = None
    observed_generation: int | None = None
    provider_status: dict[str, Any] | None = None
    resources: list[NamedResourceReference] | None = None
    state: dict[str, Any] | None = None
