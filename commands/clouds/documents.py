"""Objects in files, with the places of their fields."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

from clouds.frame.cloud import Json, Lookup
from windowbox.errors import Malformed, Missing
from windowbox.models.gardener.cloudprofile import require_small
from windowbox.models.objects import mapping

_LARGEST_FILE = 4 << 20
_MOST_VALUES = 200_000
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


def read_all(files: Iterable[str]) -> list[Document]:
    """The objects of all files; `-` is standard input."""
    return [document for file in files for document in read(file, _text(file))]


def lookup(documents: Sequence[Document]) -> Lookup:
    """Finds these objects by kind, namespace and name."""
    by_name = {(one.kind, one.namespace, one.name): one.content for one in documents}
    return lambda kind, namespace, name: by_name.get((kind, namespace, name))


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


def _text(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise Missing(f"{file} cannot be read: {error.strerror}") from error
