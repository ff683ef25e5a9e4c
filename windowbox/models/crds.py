"""The CustomResourceDefinitions of the kinds we serve, made from our own models.

`python -m windowbox.models.crds` writes them to `deploy/crds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from windowbox.models.backups import BackupBucketSpec, BackupBucketStatus, BackupEntrySpec
from windowbox.models.bastion import BastionSpec, BastionStatus
from windowbox.models.dnsrecord import DNSRecordSpec, DNSRecordStatus
from windowbox.models.exposure import ExposureSpec, ExposureStatus
from windowbox.models.extensions import ExtensionSpec, ExtensionStatus, Part, Raw
from windowbox.models.infrastructure import InfrastructureSpec, InfrastructureStatus
from windowbox.models.ippool import IPPoolSpec
from windowbox.models.managedresources import ManagedResourceSpec, ManagedResourceStatus
from windowbox.models.operatingsystemconfig import OperatingSystemConfigSpec, OperatingSystemConfigStatus
from windowbox.models.refs import (
    BACKUP_BUCKETS,
    BACKUP_ENTRIES,
    BASTIONS,
    CLUSTERS,
    DNSRECORDS,
    EXPOSURES,
    EXTENSIONS,
    INFRASTRUCTURES,
    IP_POOLS,
    MANAGED_RESOURCES,
    OPERATING_SYSTEM_CONFIGS,
    Resource,
)

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
    description: str
    spec: type[Part]
    columns: tuple[Column, ...]
    status: type[Part] | None = None
    short_names: tuple[str, ...] = ()
    spec_required: bool = True


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

_TYPE, _REGION = Column("Type", ".spec.type"), Column("Region", ".spec.region")


def _state(name: str) -> Column:
    return Column(name, ".status.lastOperation.state")


DEFINITIONS = (
    Definition(
        resource=BACKUP_BUCKETS,
        description="A place for the backups of etcd.",
        spec=BackupBucketSpec,
        status=BackupBucketStatus,
        short_names=("bb",),
        columns=(_TYPE, _REGION, _state("State"), _AGE),
    ),
    Definition(
        resource=BACKUP_ENTRIES,
        description="The backups of one etcd in a bucket.",
        spec=BackupEntrySpec,
        status=ExtensionStatus,
        short_names=("be",),
        columns=(_TYPE, _REGION, Column("Bucket", ".spec.bucketName"), _state("State"), _AGE),
    ),
    Definition(
        resource=BASTIONS,
        description="A machine of a Shoot that can be reached from outside.",
        spec=BastionSpec,
        status=BastionStatus,
        columns=(
            Column("IP", ".status.ingress.ip"),
            Column("Hostname", ".status.ingress.hostname"),
            _AGE,
        ),
    ),
    Definition(
        resource=CLUSTERS,
        description="What extensions may know of a Shoot. Its name is the namespace of their objects.",
        spec=ClusterSpec,
        columns=(_AGE,),
    ),
    Definition(
        resource=DNSRECORDS,
        description="A name that should resolve.",
        spec=DNSRecordSpec,
        status=DNSRecordStatus,
        short_names=("dns",),
        columns=(
            _TYPE,
            Column("Domain Name", ".spec.name"),
            Column("Record Type", ".spec.recordType"),
            _state("Status"),
            _AGE,
        ),
    ),
    Definition(
        resource=EXPOSURES,
        description="The way to the API server of a Shoot that hosts itself.",
        spec=ExposureSpec,
        status=ExposureStatus,
        short_names=("exp",),
        columns=(
            _TYPE,
            Column("IP", ".status.ingress[0].ip"),
            Column("Hostname", ".status.ingress[0].hostname"),
            _state("Status"),
            _AGE,
        ),
    ),
    Definition(
        resource=EXTENSIONS,
        description="Something that an extension adds to a Shoot, or to a seed.",
        spec=ExtensionSpec,
        status=ExtensionStatus,
        short_names=("ext",),
        columns=(_TYPE, _state("Status"), _AGE),
    ),
    Definition(
        resource=INFRASTRUCTURES,
        description="The place where the machines of a Shoot live.",
        spec=InfrastructureSpec,
        status=InfrastructureStatus,
        short_names=("infra",),
        columns=(_TYPE, _REGION, _state("Status"), _AGE),
    ),
    Definition(
        resource=IP_POOLS,
        description="Addresses that Calico gives to Pods. Defined here where there is no Calico.",
        spec=IPPoolSpec,
        columns=(Column("CIDR", ".spec.cidr"), _AGE),
    ),
    Definition(
        resource=MANAGED_RESOURCES,
        description="Objects that a resource manager applies.",
        spec=ManagedResourceSpec,
        status=ManagedResourceStatus,
        short_names=("mr",),
        spec_required=False,
        columns=(
            Column("Class", ".spec.class"),
            *(
                Column(name, f'.status.conditions[?(@.type=="Resources{name}")].status')
                for name in ("Applied", "Healthy", "Progressing")
            ),
            _AGE,
        ),
    ),
    Definition(
        resource=OPERATING_SYSTEM_CONFIGS,
        description="The files and units of a machine.",
        spec=OperatingSystemConfigSpec,
        status=OperatingSystemConfigStatus,
        short_names=("osc",),
        columns=(_TYPE, Column("Purpose", ".spec.purpose"), _state("Status"), _AGE),
    ),
)


def manifest(definition: Definition) -> Schema:
    """The CustomResourceDefinition, as the API takes it."""
    resource = definition.resource
    names: Schema = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
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
    schema: Schema = {"description": definition.description, "type": "object", "properties": properties}
    if definition.spec_required:
        schema["required"] = ["spec"]
    return {
        "name": definition.resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": column.name, "jsonPath": column.path, "type": column.type}
            for column in definition.columns
        ],
        "schema": {"openAPIV3Schema": schema},
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
