"""`windowbox validate`: what the admission of a cloud would answer to objects in files."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from clouds import table
from clouds.frame import admission
from clouds.frame.cloud import Lookup
from clouds.frame.problems import Problem
from commands.clouds.documents import Document, lookup, read_all
from commands.options import output_option
from windowbox.models.objects import mapping

_OF_CLOUD = "provider.shoot.gardener.cloud/"
"""Labels of Secrets that Shoots of a cloud use."""


class Found(NamedTuple):
    document: Document
    problem: Problem


def types(document: Document, find: Lookup) -> list[str]:
    """The clouds that check an object."""
    spec, about = mapping(document.content.get("spec")), mapping(document.content.get("metadata"))
    match document.kind:
        case "Shoot" | "Seed":
            found = [mapping(spec.get("provider")).get("type")]
        case "CloudProfile":
            found = [spec.get("type")]
        case "NamespacedCloudProfile":
            parent = find("CloudProfile", "", str(mapping(spec.get("parent")).get("name")))
            found = [mapping(mapping(parent).get("spec")).get("type")]
        case "SecretBinding" | "CredentialsBinding":
            found = [mapping(document.content.get("provider")).get("type")]
        case "Secret":
            labels = mapping(about.get("labels"))
            found = [one.removeprefix(_OF_CLOUD) for one in labels if one.startswith(_OF_CLOUD)]
        case _:
            found = []
    return [one for one in found if isinstance(one, str) and one in table.TYPES]


def check(documents: Sequence[Document]) -> tuple[int, list[Found]]:
    """How many objects were checked, and their problems. Objects find each other by name."""
    find, count = lookup(documents), 0
    found: list[Found] = []
    for document in documents:
        checking = [table.cloud(one) for one in types(document, find)]
        count += bool(checking)
        for cloud in checking:
            problems = admission.problems(cloud, document.kind.lower(), document.content, None, find)
            found.extend(Found(document, problem) for problem in problems)
    return count, found


@click.command(
    epilog="\b\nExamples:\n"
    "  windowbox validate shoot.yaml cloudprofile.yaml\n"
    "  kubectl get shoots,cloudprofiles -A -o yaml | windowbox validate -\n"
    "  windowbox validate -o json *.yaml | jq '.problems[].path'",
    short_help="Check Shoots, CloudProfiles and Secrets.",
)
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@output_option
def validate(files: tuple[str, ...], output: str) -> None:
    """What the admission of their cloud would answer to the objects in FILE…; `-` is standard input.

    A Shoot needs its CloudProfile in one of the files; no cluster is needed. Paths are those of the real
    extensions, also where they leave out a part; lines are those of the fields.
    """
    documents = read_all(files)
    count, found = check(documents)
    if output == "json":
        click.echo(json.dumps({"checked": count, "problems": [_row(one) for one in found]}, indent=2))
    else:
        for document, problem in found:
            where = f"{document.file}:{document.line(problem.path)}"
            click.echo(f"{where}: {document.kind} {document.name}: {problem.message}")
        click.echo(_summary(count, len(documents) - count, len(found)), err=True)
    sys.exit(1 if found else 0)


def _row(found: Found) -> dict[str, object]:
    document, problem = found
    return {
        "file": document.file,
        "line": document.line(problem.path),
        "kind": document.kind,
        "namespace": document.namespace,
        "name": document.name,
        "path": problem.path,
        "type": problem.type,
        "message": problem.message,
    }


def _summary(checked: int, skipped: int, problems: int) -> str:
    text = f"{checked} objects checked, {problems} problems"
    if skipped:
        text += f"; {skipped} objects belong to no cloud: {', '.join(table.TYPES)} are checked"
    return text
