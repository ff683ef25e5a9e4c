"""A Kubernetes object: raw JSON, with names for the parts that every kind has."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from windowbox.models.refs import ObjectRef

Json = Mapping[str, Any]


class Object:
    """One version of an object, immutable. Missing or malformed parts read as empty."""

    __slots__ = ("raw",)

    def __init__(self, raw: Json) -> None:
        self.raw = raw

    @property
    def metadata(self) -> Json:
        return mapping(self.raw.get("metadata"))

    @property
    def spec(self) -> Json:
        return mapping(self.raw.get("spec"))

    @property
    def status(self) -> Json:
        return mapping(self.raw.get("status"))

    @property
    def last_operation(self) -> Json:
        return mapping(self.status.get("lastOperation"))

    @property
    def name(self) -> str:
        return str(self.metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace", ""))

    @property
    def uid(self) -> str:
        return str(self.metadata.get("uid", ""))

    @property
    def resource_version(self) -> str:
        return str(self.metadata.get("resourceVersion", ""))

    @property
    def generation(self) -> int:
        return int(self.metadata.get("generation") or 0)

    @property
    def deleting(self) -> bool:
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def annotations(self) -> Json:
        return mapping(self.metadata.get("annotations"))

    @property
    def labels(self) -> Json:
        return mapping(self.metadata.get("labels"))

    @property
    def finalizers(self) -> tuple[str, ...]:
        return tuple(self.metadata.get("finalizers") or ())

    def ref(self, cluster: str, kind: str) -> ObjectRef:
        return ObjectRef(cluster, kind, self.namespace, self.name)


def mapping(value: object) -> Json:
    """A mapping as it is; empty for a value of any other type."""
    # Decoded JSON has plain dictionaries. A check for the abstract class takes ten times as long.
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def from_base64(text: str) -> bytes:
    """Bytes as objects spell them; ValueError for anything else. As in Go, line breaks do not count."""
    return base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True)


def mappings(value: object) -> list[Json]:
    """The mappings of a list; of anything else, none."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def merge(target: object, patch: object) -> Any:
    """`target` after the JSON merge patch `patch` (RFC 7396). Neither of them is changed."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def replacement(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch with all of `wanted`, and null for what `found` has besides."""
    patch: dict[str, Any] = {name: None for name in found if name not in wanted}
    for name, value in wanted.items():
        patch[name] = replacement(mapping(found.get(name)), value) if isinstance(value, Mapping) else value
    return patch
