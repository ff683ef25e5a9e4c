"""Desired manifests of owned objects, compared with the objects that exist. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windowbox.models.objects import Object, mapping, mappings
from windowbox.models.refs import MACHINE_CLASSES, MANAGED_RESOURCES, NETWORK_POLICIES, Resource

Manifest = dict[str, Any]

_OURS_ALONE = frozenset({MACHINE_CLASSES, MANAGED_RESOURCES, NETWORK_POLICIES})
"""Kinds without defaults: further fields in their spec were added by hand, and are drift."""
_HEAD = frozenset({"apiVersion", "kind", "metadata", "status"})
_KEPT = ("labels", "annotations")
_WHOLE = "selector"
"""A mapping compared as a whole: with one more label, a Service selects no Pod."""


def manifest(
    resource: Resource,
    name: str,
    namespace: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    owners: list[dict[str, Any]] | None = None,
    **content: Any,
) -> Manifest:
    """A desired object; `content` are its fields beside the metadata, such as `spec`."""
    metadata: dict[str, Any] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    if owners:
        metadata["ownerReferences"] = owners
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    return {"apiVersion": version, "kind": resource.kind, "metadata": metadata, **content}


def differs(resource: Resource, found: Object, wanted: Manifest) -> bool:
    """Whether `found` lacks a part of `wanted`. Fields that others have added may stay."""
    head = {name: wanted["metadata"][name] for name in _KEPT if name in wanted["metadata"]}
    body = {name: value for name, value in wanted.items() if name not in _HEAD}
    if resource in _OURS_ALONE:
        same = all(_bare(value) == _bare(found.raw.get(name)) for name, value in body.items())
    else:
        same = _within(body, found.raw)
    # The order of owners means nothing, and others may have added theirs.
    ours = wanted["metadata"].get("ownerReferences") or []
    owners = found.metadata.get("ownerReferences") or []
    owned = all(any(_within(one, other) for other in owners) for one in ours)
    return not (same and _within(head, found.metadata) and owned)


def excess(resource: Resource, found: Object, wanted: Manifest) -> dict[str, Any] | None:
    """The merge patch that removes fields added by hand to kinds without defaults; None if there are none."""
    if resource not in _OURS_ALONE:
        return None
    patch = {
        name: _removing(found.raw.get(name), value) for name, value in wanted.items() if name not in _HEAD
    }
    patch = {name: change for name, change in patch.items() if change}
    return patch or None


def _bare(value: Any) -> Any:
    """The value without empty lists, which the API omits."""
    if isinstance(value, Mapping):
        return {name: _bare(inner) for name, inner in value.items() if inner != [] and inner is not None}
    return [_bare(one) for one in value] if isinstance(value, list) else value


def _within(wanted: Any, found: Any) -> bool:
    """Whether `found` contains everything in `wanted`. Lists must have the same length."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            v == found.get(k) if k == _WHOLE else _within(v, found.get(k)) for k, v in wanted.items()
        )
    if wanted == [] and found is None:
        return True
    if isinstance(wanted, list):
        same_length = isinstance(found, list) and len(wanted) == len(found)
        return same_length and all(_within(one, other) for one, other in zip(wanted, found, strict=True))
    return bool(wanted == found)


def _removing(found: Any, wanted: Any) -> dict[str, Any]:
    """The merge patch that removes all fields that are not wanted."""
    if not (isinstance(found, Mapping) and isinstance(wanted, Mapping)):
        return {}
    patch: dict[str, Any] = {name: None for name in found if name not in wanted}
    for name, value in wanted.items():
        if inner := _removing(found.get(name), value):
            patch[name] = inner
    return patch


_REPORTED = ("hostname", "ip", "ipMode")
"""The fields of an address that extension objects report. Their schema has ports only with errors."""


def balancer_ingress(service: Object | None) -> list[dict[str, Any]]:
    """The addresses of a Service, as an extension object reports them."""
    balancer = mapping(service.status.get("loadBalancer")) if service else {}
    entries = mappings(balancer.get("ingress"))
    return [{name: entry[name] for name in _REPORTED if entry.get(name)} for entry in entries]
