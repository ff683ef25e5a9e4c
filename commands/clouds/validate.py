"""`windowbox validate`: what the admission of a cloud would answer to objects in files."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import click

from clouds import table
from clouds.frame import admission
from clouds.frame.cloud import Lookup
from clouds.frame.problems import Problem
from commands.clouds.documents import Document, lookup, read_all
from commands.options import output_option
from windowbox.models.objects import mapping

_GROUPS = {
    "Shoot": "core.gardener.cloud",
    "CloudProfile": "core.gardener.cloud",
    "NamespacedCloudProfile": "core.gardener.cloud",
    "Seed": "core.gardener.cloud",
    "SecretBinding": "core.gardener.cloud",
    "CredentialsBinding": "security.gardener.cloud",
    "Secret": "",
}
"""The kinds that are checked."""
_OF_CLOUD = "provider.shoot.gardener.cloud/"
"""Labels of Secrets that Shoots of a cloud use."""
_IN_MESSAGE = re.compile(r"([\w.\[\]]+): ([\w.]+) is ")
_SEARCHED = 2000
"""Characters of a message: the search takes long in a long name."""
_NAMED = 20
"""Objects that a summary names."""


class Found(NamedTuple):
    document: Document
    problem: Problem


@dataclass
class Result:
    """What a check of several objects found."""

    checked: int = 0
    problems: list[Found] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Objects of kinds that are checked, but of other types: the reason by title."""
    others: int = 0
    """Objects of other kinds."""
    missing: set[str] = field(default_factory=set)
    """Objects that a check looked for, and that no file has."""


def check(documents: Sequence[Document]) -> Result:
    """Check all objects. They find each other by name."""
    result = Result()
    find = lookup(documents, result.missing)
    for document in documents:
        if not _is_checked(document):
            result.others += 1
            continue
        types = _types(document, find)
        clouds = [one for one in types if one in table.TYPES]
        if not clouds:
            of_type = f"is of type {', '.join(types)}" if types else "names no type"
            result.skipped[document.title] = f"{of_type}; checked are {', '.join(table.TYPES)}"
        result.checked += bool(clouds)
        for cloud in clouds:
            problems = admission.problems(
                table.cloud(cloud), document.kind.lower(), document.content, None, find
            )
            result.problems.extend(Found(document, problem) for problem in problems)
    return result


def _is_checked(document: Document) -> bool:
    """Whether it is of a kind that is checked, and a Secret is one of a cloud."""
    if _GROUPS.get(document.kind) != document.group:
        return False
    labels = mapping(document.metadata.get("labels"))
    return document.kind != "Secret" or any(one.startswith(_OF_CLOUD) for one in labels)


def _types(document: Document, find: Lookup) -> list[str]:
    """The types of provider that an object is for."""
    spec = mapping(document.content.get("spec"))
    found: list[object]
    match document.kind:
        case "Shoot" | "Seed":
            found = [mapping(spec.get("provider")).get("type")]
        case "CloudProfile":
            found = [spec.get("type")]
        case "NamespacedCloudProfile":
            parent = find("CloudProfile", "", str(mapping(spec.get("parent")).get("name")))
            found = [mapping(mapping(parent).get("spec")).get("type")]
        case "Secret":
            labels = mapping(document.metadata.get("labels"))
            found = [one.removeprefix(_OF_CLOUD) for one in labels if one.startswith(_OF_CLOUD)]
        case _:
            # A SecretBinding may be for several types.
            found = [*str(mapping(document.content.get("provider")).get("type") or "").split(",")]
    return [one for one in found if one and isinstance(one, str)]


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

    A Shoot needs its CloudProfile in one of the files; of type openstack or equinixmetal also its binding and
    Secret, if it names one. No cluster is needed. Paths are those of the real extensions, also where they
    leave out a part; lines are those of the fields.
    """
    result = check(read_all(files))
    if output == "json":
        click.echo(json.dumps(_report(result), indent=2))
    else:
        for document, problem in result.problems:
            where = f"{document.file}:{_line(document, problem)}"
            click.echo(f"{where}: {document.title}: {problem.message}")
        click.echo("\n".join(_summary(result)), err=True)
    sys.exit(1 if result.problems else 0)


def _line(document: Document, problem: Problem) -> int:
    """The line of the field. Messages about configs that cannot be read name it better than their path."""
    inner = _IN_MESSAGE.search(problem.message, 0, _SEARCHED)
    return document.line(problem.path, *([f"{inner[1]}.{inner[2]}"] if inner else []))


def _report(result: Result) -> dict[str, object]:
    problems = [
        {
            "file": found.document.file,
            "line": _line(found.document, found.problem),
            "kind": found.document.kind,
            "namespace": found.document.namespace,
            "name": found.document.name,
            "path": found.problem.path,
            "type": found.problem.type,
            "message": found.problem.message,
        }
        for found in result.problems
    ]
    skipped = [{"object": title, "reason": reason} for title, reason in result.skipped.items()]
    return {
        "checked": result.checked,
        "problems": problems,
        "skipped": skipped,
        "missing": sorted(result.missing),
    }


def _summary(result: Result) -> list[str]:
    lines = [f"skipped: {title} {reason}" for title, reason in [*result.skipped.items()][:_NAMED]]
    if (more := len(result.skipped) - _NAMED) > 0:
        lines.append(f"skipped: {_counted(more, 'more object')}")
    missing = sorted(result.missing)
    if missing and (result.problems or result.skipped):
        lines.append(f"in no file: {', '.join(missing[:_NAMED])}: add the files that have them")
    if result.others:
        lines.append(f"skipped: {_counted(result.others, 'object')} of other kinds")
    lines.append(f"{_counted(result.checked, 'object')} checked, {_counted(len(result.problems), 'problem')}")
    return lines


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
