"""The fields that all kinds of `extensions.gardener.cloud` share, as the API spells them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

OPERATION = "gardener.cloud/operation"
"""Annotation: what the client asks for (`reconcile`, `migrate`, `restore`, `wait-for-state`)."""
TIMESTAMP = "gardener.cloud/timestamp"
"""Annotation: when the client asked. It compares it with `lastOperation.lastUpdateTime`."""
ROLE = "gardener.cloud/role"
"""Label of namespaces; `shoot` marks the control plane of a Shoot."""
FORCE_DELETION = "confirmation.gardener.cloud/force-deletion"
"""Annotation of Shoots: delete even where that leaves orphans behind."""

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def instant(text: object) -> datetime | None:
    """The time of an RFC 3339 text, in UTC; None if it is not valid."""
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def spelled(moment: datetime) -> str:
    """`moment` in the form of status fields: whole seconds, rounded down, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def overtaken(report: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Whether the status `shown` holds a later report than the patch `report`, as after a loss of the bus.

    The generation decides, and for the same generation the time of the report. Each report is at least as
    late as the one it builds on, so that this compares no clocks of different machines.
    """
    match report.get("observedGeneration"), shown.get("observedGeneration"):
        case int(ours), int(theirs) if ours != theirs:
            return ours < theirs
    at, shown_at = reported_at(report), reported_at(shown)
    return at is not None and shown_at is not None and at < shown_at


def in_order(report: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """The report that follows the status `shown`, never with an earlier time.

    The previous report may come from a machine whose clock is ahead: the order on the bus counts.
    """
    before, now = reported_at(shown), reported_at(report)
    if before is None or now is None or before <= now:
        return dict(report)
    return {**report, "lastOperation": {**report["lastOperation"], "lastUpdateTime": spelled(before)}}


def reported_at(status: Mapping[str, Any]) -> datetime | None:
    """When the last operation of `status` was reported."""
    return instant((status.get("lastOperation") or {}).get("lastUpdateTime"))


Int32 = Annotated[int, Field(json_schema_extra={"format": "int32"})]
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]
Raw = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""An object whose fields another program defines."""
Anything = Annotated[
    object, Field(json_schema_extra={"type": None, "x-kubernetes-preserve-unknown-fields": True})
]
"""Any JSON at all."""
Bytes = Annotated[str, Field(json_schema_extra={"format": "byte"})]
"""Base64."""
IntOrString = Annotated[int | str, WithJsonSchema({"x-kubernetes-int-or-string": True})]
"""A number, or a percentage such as `25%`."""
_QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
Quantity = Annotated[
    int | float | str, WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": _QUANTITY})
]
"""An amount such as `100m` or `4Gi`."""
Quantities = dict[str, Quantity]
Strings = Annotated[dict[str, str], Field(json_schema_extra={"additionalProperties": {"type": "string"}})]


ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
"""Of a list that belongs as a whole to its last writer."""
IMMUTABLE: dict[str, Any] = {
    "x-kubernetes-validations": [{"message": "Value is immutable", "rule": "self == oldSelf"}]
}
"""Of a field that never changes."""

_QUALIFIED_NAME = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


class Part(BaseModel):
    """A part of an object: frozen, camelCase outside, tolerant of fields that a newer Gardener added."""

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


class SecretReference(Part):
    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: str | None = None
    namespace: str | None = None


class ObjectReference(Part):
    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    api_version: str | None = None
    field_path: str | None = None
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    resource_version: str | None = None
    uid: str | None = None


class PortStatus(Part):
    error: str = Field(json_schema_extra={"maxLength": 316, "pattern": _QUALIFIED_NAME})
    port: Int32
    protocol: str


class LoadBalancerIngress(Part):
    hostname: str | None = None
    ip: str | None = None
    ip_mode: str | None = None
    ports: list[PortStatus] | None = Field(None, json_schema_extra=ATOMIC)


class LastOperation(Part):
    description: str
    last_update_time: datetime
    """When this was reported. A client waits until it is not before its own timestamp."""
    progress: Int32
    """In percent."""
    state: str
    """Processing, Succeeded or Error."""
    type: str
    """Create, Reconcile, Delete, Migrate or Restore."""


class LastError(Part):
    description: str
    codes: list[str] | None = None
    """Gardener's error codes: they say whether a retry can help."""
    last_update_time: datetime | None = None
    task_id: str | None = Field(None, alias="taskID")


class Condition(Part):
    type: str
    status: str
    """True, False, Unknown or Progressing."""
    last_transition_time: datetime
    """When `status` last changed."""
    last_update_time: datetime
    """When reason, message or codes last changed."""
    reason: str
    message: str
    codes: list[str] | None = None


class ResourceReference(Part):
    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    api_version: str | None = None
    kind: str
    name: str


class NamedResourceReference(Part):
    name: str
    resource_ref: ResourceReference


class ExtensionSpec(Part):
    type: str
    """Which provider is to act. windowbox serves the type `local`."""
    class_: str | None = Field(None, alias="class", json_schema_extra=IMMUTABLE)
    """Whom the object is for: garden, seed or shoot. Not given means shoot. Never changes."""
    provider_config: Raw | None = None


class ExtensionStatus(Part):
    conditions: list[Condition] | None = None
    last_error: LastError | None = None
    """What went wrong in the last run. Absent after a success."""
    last_operation: LastOperation | None = None
    """How the last run went, or goes."""
    observed_generation: Int64 | None = None
    """The generation that the last finished run has seen."""
    provider_status: Raw | None = None
    resources: list[NamedResourceReference] | None = None
    state: Raw | None = None
    """What the controller wants to find again after a migration to another seed."""
