"""The CustomResourceDefinitions of the kinds that the models list as `DEFINITIONS`.

`python -m windowbox.models.crds` writes them to `deploy/crds`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from windowbox import models
from windowbox.models.definitions import Definition
from windowbox.models.extensions import Part

DIRECTORY = Path(__file__).resolve().parents[2] / "deploy" / "crds"

Schema = dict[str, Any]


def definitions() -> Iterator[Definition]:
    """The definitions of all models."""
    for module in pkgutil.walk_packages(models.__path__, f"{models.__name__}."):
        if not module.name.endswith(".crds"):  # which runs as `__main__`
            yield from getattr(importlib.import_module(module.name), "DEFINITIONS", ())


def manifest(definition: Definition) -> Schema:
    """The CustomResourceDefinition, as the API takes it."""
    resource = definition.resource
    names: Schema = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    if resource.short_names:
        names["shortNames"] = list(resource.short_names)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.id},
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [_version(definition)],
        },
    }


def structural(model: type[Part]) -> Schema:
    """The schema of `model` as Kubernetes wants it: without references, titles, alternatives and nulls."""
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}))


def text(definition: Definition) -> str:
    """The file in `deploy/crds` for `definition`."""
    body = yaml.safe_dump(manifest(definition), sort_keys=False, width=100, allow_unicode=True)
    return f"# Made by `python -m windowbox.models.crds`; change the models instead.\n{body}"


def path(definition: Definition) -> Path:
    return DIRECTORY / f"{definition.resource.plural}.yaml"


def main() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for definition in definitions():
        path(definition).write_text(text(definition))


def _version(definition: Definition) -> Schema:
    schema = structural(definition.spec)
    inner = schema["properties"] if definition.flat else {"spec": schema}
    if definition.status:
        inner["status"] = structural(definition.status)
    metadata: Schema = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    whole: Schema = {
        "description": definition.description,
        "type": "object",
        "properties": metadata | inner,
    }
    if definition.flat:
        whole["required"] = schema["required"]
    elif definition.spec_required:
        whole["required"] = ["spec"]
    version: Schema = {
        "name": definition.resource.version,
        "served": True,
        "storage": True,
    }
    if not definition.flat:
        version["subresources"] = {"status": {}, **definition.subresources}
    if definition.columns:
        version["additionalPrinterColumns"] = [
            {"name": column.name, "jsonPath": column.path, "type": column.type}
            | ({"priority": column.priority} if column.priority else {})
            for column in definition.columns
        ]
    return version | {"schema": {"openAPIV3Schema": whole}}


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """`node` of pydantic's schema in Kubernetes' dialect, which knows fewer words."""
    if "$ref" in node:
        node = {**definitions[node["$ref"].rsplit("/", 1)[-1]], **node}
    if "x-kubernetes-int-or-string" in node:
        kept = {key: value for key, value in node.items() if key in ("description", "pattern")}
        return kept | {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    if "anyOf" in node:
        # An optional field: in Kubernetes it is absent, never null.
        (only,) = (choice for choice in node["anyOf"] if choice.get("type") != "null")
        node = {**only, **node}
        return _structural({key: value for key, value in node.items() if key != "anyOf"}, definitions)
    schema = {key: value for key, value in node.items() if key in _KEPT or key.startswith("x-kubernetes-")}
    schema = {key: value for key, value in schema.items() if value is not None}
    if "properties" in node:
        schema["properties"] = {
            name: _structural(inner, definitions) for name, inner in node["properties"].items()
        }
    if (
        "additionalProperties" in node
        and "properties" not in node
        and node["additionalProperties"] is not True
    ):
        schema["additionalProperties"] = _structural(node["additionalProperties"], definitions)
    if "required" in node:
        schema["required"] = sorted(node["required"])
    if "items" in node:
        schema["items"] = _structural(node["items"], definitions)
    return schema


_KEPT = ("default", "description", "enum", "format", "maxLength", "pattern", "type")


if __name__ == "__main__":
    main()
