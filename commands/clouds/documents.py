"""Objects in YAML and JSON files, with the lines of their fields. Files may be hostile."""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.composer import Composer, ComposerError

from clouds.frame.cloud import Lookup
from windowbox.errors import Malformed, Missing
from windowbox.models.objects import Json, mapping

_LARGEST = 32 << 20
_MOST_VALUES = 500_000
_DEEPEST = 64
_DIGITS = 9
_LEFT_OUT = (
    "",
    "spec",
    "spec.provider.infrastructureConfig",
    "spec.provider.infrastructureConfig.networks",
    "spec.provider.workers[0]",
)
"""The parts of a path that real extensions leave out."""
_STEP = re.compile(r"([^.\[\]]+)|\[(\d{1,8})\]|\[([^\]]+)\]")


@dataclass(frozen=True)
class Document:
    """An object in a file, with the places of its fields."""

    file: str
    node: yaml.Node
    content: dict[str, Any]

    @property
    def group(self) -> str:
        return str(self.content.get("apiVersion")).rpartition("/")[0]

    @property
    def kind(self) -> str:
        return _plain(self.content.get("kind"))

    @property
    def metadata(self) -> Json:
        return mapping(self.content.get("metadata"))

    @property
    def namespace(self) -> str:
        return _plain(self.metadata.get("namespace"))

    @property
    def name(self) -> str:
        return _plain(self.metadata.get("name"))

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {name}"

    def line(self, *paths: str) -> int:
        """The line of the field, or of the innermost part around it that exists; the innermost of several."""
        starts = [_place(self.node, before) for before in _LEFT_OUT]
        places = [_place(start.node, path) for start in starts for path in paths]
        return max(places, key=lambda place: place.depth).node.start_mark.line + 1


class _Place(NamedTuple):
    depth: int
    node: yaml.Node


def read_all(files: Iterable[str]) -> list[Document]:
    """The objects of all files; `-` is standard input. Malformed or Missing if one cannot be read."""
    return [document for file in files for document in read(file, _text(file))]


def lookup(documents: Sequence[Document], missing: set[str]) -> Lookup:
    """Finds these objects by kind, namespace and name, the last of several. Others are noted as missing."""
    by_name = {(one.kind, one.namespace, one.name): one.content for one in documents}

    def find(kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        found = by_name.get((kind, namespace, name))
        if found is None:
            missing.add(f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}")
        return found

    return find


def read(file: str, text: bytes) -> list[Document]:
    """All objects of a file, also those of lists. Malformed, with the line, if it is no YAML."""
    if len(text) > _LARGEST:
        raise Malformed(f"{file} is larger than {_LARGEST >> 20} MiB: split it")
    loader = _Loader(text)
    found: list[Document] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None  # check_node says so
            found.extend(_objects(file, node, loader.construct_document(node)))
    except yaml.MarkedYAMLError as error:
        where = f"{file}:{error.problem_mark.line + 1}" if error.problem_mark else file
        raise Malformed(f"{where}: cannot be read: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        raise Malformed(f"{file}: cannot be read: {error.reason}: write it as UTF-8") from error
    except ValueError as error:
        raise Malformed(f"{file}: cannot be read: a number has too many digits") from error
    finally:
        loader.dispose()
    return found


def _text(file: str) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read(_LARGEST + 1)
        with Path(file).open("rb") as opened:
            return opened.read(_LARGEST + 1)
    except OSError as error:
        raise Missing(f"{file} cannot be read: {error.strerror}") from error


def _objects(file: str, node: yaml.Node, content: object) -> Iterator[Document]:
    if not isinstance(content, dict):
        return
    items, inside = content.get("items"), _child(node, "items", "")
    if inside is not None and isinstance(items, list):
        for item, place in zip(items, inside.value, strict=True):
            yield from _objects(file, place, item)
    else:
        yield Document(file, node, _with_string_data(content))


def _with_string_data(content: dict[str, Any]) -> dict[str, Any]:
    """A Secret as an API server stores it: with `stringData` in its data. Others as they are."""
    given = mapping(content.get("stringData"))
    if content.get("kind") != "Secret" or not given:
        return content
    added = {name: b64encode(str(text).encode(errors="replace")).decode() for name, text in given.items()}
    return {**content, "data": {**mapping(content.get("data")), **added}}


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
    if isinstance(node, yaml.SequenceNode):
        # pydantic writes `zones.0`, Kubernetes `zones[0]`.
        at = int(index or (name if name.isdecimal() and len(name) < _DIGITS else -1))
        found = node.value[at] if 0 <= at < len(node.value) else None
    elif isinstance(node, yaml.MappingNode):
        found = next((value for key, value in node.value if key.value == (name or index)), None)
    return found


def _plain(value: object) -> str:
    """For people and their terminals: without control characters."""
    return "".join(one if one.isprintable() else "?" for one in str(value or ""))


class _Loader(Composer, yaml.CSafeLoader):
    """Reads YAML as Kubernetes does: libyaml parses, and what it makes is bounded here.

    An alias counts as what it stands for, and keys are there once: so merged mappings are bounded, too.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 -- the table of the class above, without dates
        first: [(tag, pattern) for tag, pattern in all_ if not tag.endswith((":timestamp", ":value"))]
        for first, all_ in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: bytes) -> None:
        yaml.CSafeLoader.__init__(self, stream)
        Composer.__init__(self)
        self._depth = self._deepest = self._count = 0
        self._measured: dict[yaml.Node, tuple[int, int]] = {}
        """Of nodes with an anchor: how many values they are, and how many levels."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()
        count, deepest = self._count, self._deepest
        self._depth += 1
        self._deepest = self._depth
        self._count += 1
        self._require(self._depth <= _DEEPEST, f"more than {_DEEPEST} levels: nest it less", event)
        node = super().compose_node(parent, index)
        assert node is not None
        if isinstance(event, yaml.AliasEvent):
            self._require(
                node in self._measured, "an alias for what it lies in: write out what it stands for", event
            )
            values, levels = self._measured[node]
            self._count += values
            self._deepest += levels
            self._require(self._deepest <= _DEEPEST, f"more than {_DEEPEST} levels: nest it less", event)
        elif event.anchor is not None:
            self._measured[node] = self._count - count, self._deepest - self._depth
        self._require(self._count <= _MOST_VALUES, f"more than {_MOST_VALUES} values: split the file", event)
        self._depth -= 1
        self._deepest = max(deepest, self._deepest)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys: set[str] = set()
        for key, _ in node.value:
            self._require(
                isinstance(key, yaml.ScalarNode), "a key is a list or a mapping: make it a text", key
            )
            self._require(key.value not in keys, f"key {key.value!r:.99} is there twice: remove one", key)
            keys.add(key.value)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}

    @staticmethod
    def _require(holds: bool, why: str, where: Any) -> None:
        """Fail at an event or a node."""
        if not holds:
            raise ComposerError(None, None, why, where.start_mark)


def _refused(loader: _Loader, node: Any) -> object:
    raise ComposerError(None, None, f"tag {node.tag!r:.99} is not known: remove it", node.start_mark)


_TYPES = ("null", "bool", "int", "float", "str", "seq", "map")
_Loader.yaml_constructors = {
    f"tag:yaml.org,2002:{one}": yaml.CSafeLoader.yaml_constructors[f"tag:yaml.org,2002:{one}"]
    for one in _TYPES
} | {None: _refused}
