"""The CustomResourceDefinitions of the kinds we serve, made from our own models.

`python -m windowbox.models.crds` writes them to `deploy/crds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from windowbox.models.dnsrecord import DNSRecordSpec, DNSRecordStatus
from windowbox.models.extensions import Part, Raw
from windowbox.models.refs import CLUSTERS, DNSRECORDS, Resource

DIRECTORY = Path(__file__).resolve().parents[2] / "deploy" / "crds"

Schema = dict[str, Any]


class ClusterSpec(Part):
    cloud_profile: Raw
    """The CloudProfile of the Shoot, as it is in the garden."""
    seed: Raw | None = None
    """The Seed of the Shoot. Absent where a Shoot hosts itself."""
    shoot: Raw
    """The Shoot, as it is in the garden."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"


@dataclass(frozen=True, slots=True)
class Definition:
    """All that a CustomResourceDefinition is made from."""

    resource: Resource
    kind: str
    description: str
    spec: type[Part]
    columns: tuple[Column, ...]
    status: type[Part] | None = None
    short_names: tuple[str, ...] = ()


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

DEFINITIONS = (
    Definition(
        resource=DNSRECORDS,
        kind="DNSRecord",
        description="A name that should resolve.",
        spec=DNSRecordSpec,
        status=DNSRecordStatus,
        short_names=("dns",),
        columns=(
            Column("Type", ".spec.type"),
            Column("Domain Name", ".spec.name"),
            Column("Record Type", ".spec.recordType"),
            Column("Status", ".status.lastOperation.state"),
            _AGE,
        ),
    ),
    Definition(
        resource=CLUSTERS,
        kind="Cluster",
        description="What extensions may know of a Shoot. Its name is the namespace of their objects.",
        spec=ClusterSpec,
        columns=(_AGE,),
    ),
)


def manifest(definition: Definition) -> Schema:
    """The CustomResourceDefinition, as the API takes it."""
    resource = definition.resource
    names: Schema = {
        "kind": definition.kind,
        "listKind": f"{definition.kind}List",
        "plural": resource.plural,
        "singular": definition.kind.lower(),
    }
    if definition.short_names:
        names["shortNames"] = list(definition.short_names)
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
    for definition in DEFINITIONS:
        path(definition).write_text(text(definition))


def _version(definition: Definition) -> Schema:
    properties: Schema = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": structural(definition.spec),
    }
    if definition.status:
        properties["status"] = structural(definition.status)
    return {
        "name": definition.resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": column.name, "jsonPath": column.path, "type": column.type}
            for column in definition.columns
        ],
        "schema": {
            "openAPIV3Schema": {
                "description": definition.description,
                "type": "object",
                "properties": properties,
                "required": ["spec"],
            }
        },
    }


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """`node` of pydantic's schema in Kubernetes' dialect, which knows fewer words."""
    if "$ref" in node:
        node = {**definitions[node["$ref"].rsplit("/", 1)[-1]], **node}
    if "anyOf" in node:
        # An optional field: in Kubernetes it is absent, never null.
        (only,) = (choice for choice in node["anyOf"] if choice.get("type") != "null")
        node = {**only, **node}
        return _structural({key: value for key, value in node.items() if key != "anyOf"}, definitions)
    schema = {key: value for key, value in node.items() if key in _KEPT or key.startswith("x-kubernetes-")}
    if "properties" in node:
        schema["properties"] = {
            name: _structural(inner, definitions) for name, inner in node["properties"].items()
        }
    if "required" in node:
        schema["required"] = sorted(node["required"])
    if "items" in node:
        schema["items"] = _structural(node["items"], definitions)
    return schema


_KEPT = ("description", "type", "format")


if __name__ == "__main__":
    main()
