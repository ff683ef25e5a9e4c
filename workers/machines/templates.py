"""Templates of Machines: which changes make another MachineSet, and which are copied."""

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
"""Fields of a Machine's spec that say how it is handled, not what it is."""
COPIED = ("nodeTemplate", *CONFIGURATION)


def same(one: Template, other: Template) -> bool:
    """Whether machines of either template are the same, so that nothing has to be replaced."""
    return bool(_essence(one) == _essence(other))


def copied(template: Template) -> dict[str, Any]:
    """What existing Machines get without being replaced: fields of their spec."""
    spec = mapping(template.get("spec"))
    fields = {name: pruned(spec[name]) for name in COPIED if spec.get(name) is not None}
    kind = mapping(spec.get("class")).get("kind")
    return {name: value for name, value in fields.items() if value not in ({}, [])} | (
        {"class": {"kind": kind}} if kind else {}
    )


def differences(found: Mapping[str, Any], wanted: Template) -> dict[str, Any]:
    """The merge patch that gives a spec what a template copies to it; empty if it has all that."""
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
    """What a merge patch has to say so that `found` becomes `wanted`, with no key left over."""
    if not isinstance(found, Mapping) or not isinstance(wanted, Mapping):
        return wanted
    left = {name: None for name in found if name not in wanted}
    return left | {name: replacing(found.get(name), value) for name, value in wanted.items()}


def pruned(value: Any) -> Any:
    """Without nulls and empty mappings or lists, which clients of other languages write and the API drops."""
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
