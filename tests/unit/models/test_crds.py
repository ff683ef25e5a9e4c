from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.rules import rule
from windowbox.models import crds
from windowbox.models.definitions import Definition
from windowbox.models.gardener.dnsrecord import DNSRecordStatus
from windowbox.models.refs import IP_POOLS

DEFINITIONS = tuple(crds.definitions())
GIVEN = Path(__file__).resolve().parents[3].parent / "shared" / "crds"

each = pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.resource.kind)


@each
def test_the_files_are_what_the_models_say(definition: Definition) -> None:
    found = crds.path(definition).read_text()
    assert found == crds.text(definition), "run `python -m windowbox.models.crds`"


def test_there_are_no_other_files() -> None:
    assert {crds.path(definition) for definition in DEFINITIONS} == set(crds.DIRECTORY.iterdir())


# The definition of IPPools is our own.
@pytest.mark.parametrize(
    "definition",
    [definition for definition in DEFINITIONS if definition.resource != IP_POOLS],
    ids=lambda definition: definition.resource.kind,
)
def test_the_definitions_are_those_of_gardener(definition: Definition) -> None:
    if not GIVEN.is_dir():
        pytest.skip("the CustomResourceDefinitions to compare with are not here")
    given = GIVEN / f"10-crd-{definition.resource.group}_{definition.resource.plural}.yaml"
    assert bare(crds.manifest(definition)) == bare(yaml.safe_load(given.read_text()))


@rule("C-2")
def test_a_cluster_lives_in_no_namespace() -> None:
    scopes = {d.resource.kind: crds.manifest(d)["spec"]["scope"] for d in DEFINITIONS}
    assert (scopes["DNSRecord"], scopes["Cluster"]) == ("Namespaced", "Cluster")


@rule("S-1")
def test_the_status_has_one_last_error_and_no_list_of_them() -> None:
    properties = crds.structural(DNSRecordStatus)["properties"]
    assert "lastError" in properties
    assert "lastErrors" not in properties


def bare(node: Any) -> Any:
    """`node` without what is only there for people, and sorted where order means nothing."""
    match node:
        case list():
            return [bare(item) for item in node]
        case dict():
            # A property may be called "description" too; that one is a schema, not a text.
            kept = {key: value for key, value in node.items() if key != "annotations"}
            texts = {key for key, value in kept.items() if key == "description" and isinstance(value, str)}
            found = {key: bare(value) for key, value in kept.items() if key not in texts}
            return found | {"required": sorted(node["required"])} if "required" in node else found
        case _:
            return node
