"""`windowbox validate`: what the admission of a cloud would answer to objects in files."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click
import yaml

from clouds import table
from clouds.frame import admission
from clouds.frame.cloud import Json, Lookup
from clouds.frame.problems import Problem
from commands.options import output_option
from windowbox.errors import Malformed, Missing
from windowbox.models.gardener.cloudprofile import require_small
from windowbox.models.objects import mapping

_LARGEST_FILE = 4 << 20
_MOST_VALUES = 200_000
_OF_CLOUD = "provider.shoot.gardener.cloud/"
"""Labels of Secrets that Shoots of a cloud use."""
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]|\[([^\]]+)\]")
_LEFT_OUT = (
    "",
    "spec",
    "spec.provider.infrastructureConfig",
    "spec.provider.infrastructureConfig.networks",
    "spec.provider.workers[0]",
)
"""The parts of a path that real extensions leave out."""


@dataclass(frozen=True)
class Document:
    """An object in a file, with the places of its fields."""

    file: str
    node: yaml.Node
    content: Json

    @property
    def kind(self) -> str:
        return str(self.content.get("kind"))

    @property
    def namespace(self) -> str:
        return str(mapping(self.content.get("metadata")).get("namespace") or "")

    @property
    def name(self) -> str:
        return str(mapping(self.content.get("metadata")).get("name") or "")

    def line(self, path: str) -> int:
        """The line of the field, or of the innermost part around it that exists."""
        starts = [_place(self.node, before) for before in _LEFT_OUT]
        places = [_place(start.node, path) for start in starts]
        return max(places, key=lambda place: place.depth).node.start_mark.line + 1


class Found(NamedTuple):
    document: Document
    problem: Problem


class _Place(NamedTuple):
    depth: int
    node: yaml.Node


def _place(node: yaml.Node, path: str) -> _Place:
    depth = 0
    for name, index, key in _STEP.findall(path):
        child = _child(node, name or key, index)
        if child is None:
            break
        node, depth = child, depth + 1
    return _Place(depth, node)


def _child(node: yaml.Node, name: str, index: str) -> yaml.Node | None:
    found: yaml.Node | None = None
    if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
        found = node.value[int(index)]
    elif isinstance(node, yaml.MappingNode) and name:
        found = next((value for key, value in node.value if key.value == name), None)
    return found


def read(file: str, text: bytes) -> list[Document]:
    """All objects of a file, also those of lists. Malformed, with the line, if it is no YAML."""
    if len(text) > _LARGEST_FILE:
        raise Malformed(f"{file} is larger than {_LARGEST_FILE >> 20} MiB: split it")
    loader = yaml.CSafeLoader(text)
    found: list[Document] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None  # check_node says so
            content = loader.construct_document(node)
            require_small(content, f"{file}:{node.start_mark.line + 1}", _MOST_VALUES)
            found.extend(_objects(file, node, content))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else file
        raise Malformed(f"{where}: is no YAML: {getattr(error, 'problem', None) or error}") from error
    finally:
        loader.dispose()
    return found


def _objects(file: str, node: yaml.Node, content: object) -> Iterator[Document]:
    if not isinstance(content, dict):
        return
    items, inside = content.get("items"), _child(node, "items", "")
    if inside is not None and isinstance(items, list):
        for item, place in zip(items, inside.value, strict=False):
            yield from _objects(file, place, item)
    else:
        yield Document(file, node, content)


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
    by_name = {(one.kind, one.namespace, one.name): one.content for one in documents}

    def find(kind: str, namespace: str, name: str) -> Json | None:
        return by_name.get((kind, namespace, name))

    count = 0
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
    documents = [document for file in files for document in read(file, _text(file))]
    count, found = check(documents)
    if output == "json":
        click.echo(json.dumps({"checked": count, "problems": [_row(one) for one in found]}, indent=2))
    else:
        for document, problem in found:
            where = f"{document.file}:{document.line(problem.path)}"
            click.echo(f"{where}: {document.kind} {document.name}: {problem.message}")
        click.echo(_summary(count, len(documents) - count, len(found)), err=True)
    sys.exit(1 if found else 0)


def _text(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise Missing(f"{file} cannot be read: {error.strerror}") from error


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
