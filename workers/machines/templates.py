"""Templates of Machines: which changes need another MachineSet, and which are copied to existing Machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windowbox.models.machinekeys import TEMPLATE_HASH
from windowbox.models.objects import mapping

Template = Mapping[str, Any]

CONFIGURATION = (
    "creationTimeout",
    "disableHealthTimeout",
    "drainTimeout",
    "healthTimeout",
    "inPlaceUpdateTimeout",
    "machinePreserveTimeout",
    "maxEvictRetries",
    "nodeConditions",
)
"""Fields of a Machine's spec that configure its lifecycle, not the machine itself."""
COPIED = ("nodeTemplate", *CONFIGURATION)


def same(one: Template, other: Template) -> bool:
    """Whether both templates create equal machines, so that none has to be replaced."""
    return bool(_essence(one) == _essence(other))


def copied(template: Template) -> dict[str, Any]:
    """The fields that existing Machines get without being replaced."""
    spec = mapping(template.get("spec"))
    fields = {name: pruned(spec[name]) for name in COPIED if spec.get(name) is not None}
    kind = mapping(spec.get("class")).get("kind")
    return {name: value for name, value in fields.items() if value not in ({}, [])} | (
        {"class": {"kind": kind}} if kind else {}
    )


def differences(found: Mapping[str, Any], wanted: Template) -> dict[str, Any]:
    """The merge patch that copies a template's fields to a spec; empty if nothing differs."""
    want, have = copied(wanted), copied({"spec": found})
    patch = {
        name: replacing(found.get(name), want.get(name))
        for name in COPIED
        if want.get(name) != have.get(name)
    }
    if "class" in want and want["class"] != have.get("class"):
        patch["class"] = want["class"]
    return patch


def replacing(found: Any, wanted: Any) -> Any:
    """The merge patch that turns `found` into `wanted`, and removes keys that are not wanted."""
    if not isinstance(found, Mapping) or not isinstance(wanted, Mapping):
        return wanted
    left = {name: None for name in found if name not in wanted}
    return left | {name: replacing(found.get(name), value) for name, value in wanted.items()}


def pruned(value: Any) -> Any:
    """The value without nulls and empty collections: some clients write them, and the API drops them."""
    if isinstance(value, Mapping):
        inner = {name: pruned(one) for name, one in value.items()}
        return {name: one for name, one in inner.items() if one is not None and one not in ({}, [])}
    return [pruned(one) for one in value] if isinstance(value, list) else value


def _essence(template: Template) -> Any:
    content = pruned(template)
    metadata, spec = dict(content.get("metadata", {})), dict(content.get("spec", {}))
    labels = {name: value for name, value in metadata.pop("labels", {}).items() if name != TEMPLATE_HASH}
    kinds = {name: value for name, value in spec.pop("class", {}).items() if name != "kind"}
    rest = {name: value for name, value in spec.items() if name not in COPIED}
    return labels, metadata, kinds, rest
