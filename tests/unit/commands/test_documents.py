"""Objects in files: where their fields are, and what hostile files cost."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from commands.clouds import documents
from tests.support.cases import cases
from windowbox.errors import Malformed, Missing

_NESTED = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
_MERGED = "".join(f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
_CHAIN = "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 100))


@cases(
    "text said",
    ("lists-in-lists", "[" * 100_000, "f:1: cannot be read: more than 64 levels: nest it less"),
    ("items-in-items", "- " * 100_000, "f:1: cannot be read: more than 64 levels: nest it less"),
    ("laughs", f"a0: &a0 [x, x]\n{_NESTED}", "f:7: cannot be read: more than 500000 values: split the file"),
    ("merges", f"a0: &a0 {{x: y}}\n{_MERGED}", "f:13: cannot be read: more than 500000 values: split the"),
    ("chain", f"a0: &a0 x\n{_CHAIN}", "f:64: cannot be read: more than 64 levels: nest it less"),
    ("itself", "a: &a [*a]", "f:1: cannot be read: an alias for what it lies in: write out what it stands"),
    ("no-anchor", "a: 1\nb: *a", "f:2: cannot be read: found undefined alias 'a'"),
    ("object", "a: !!python/object:os.system {}", "f:1: cannot be read: tag 'tag:yaml.org,2002:python/obj"),
    ("binary", "a: !!binary aGVsbG8=", "f:1: cannot be read: tag 'tag:yaml.org,2002:binary' is not known"),
    ("key-twice", "a: 1\nb: 2\na: 3", "f:3: cannot be read: key 'a' is there twice: remove one"),
    ("list-as-key", "? [a]\n: 1", "f:1: cannot be read: a key is a list or a mapping: make it a text"),
    ("number", "a: " + "9" * 5000, "f: cannot be read: a number has too many digits"),
    ("tab", "a:\n\t- b", "f:2: cannot be read: found character that cannot start any token"),
)
def test_what_cannot_be_read_is_an_error_with_its_line(text: str, said: str) -> None:
    with pytest.raises(Malformed) as error:
        documents.read("f", text.encode())
    assert str(error.value).startswith(said)


def test_bytes_that_are_no_text_are_an_error() -> None:
    with pytest.raises(Malformed, match=r"f: cannot be read: .*: write it as UTF-8"):
        documents.read("f", b"\xff\xfe\x00")


def test_a_file_that_never_ends_is_not_read_to_its_end() -> None:
    with pytest.raises(Malformed, match="/dev/zero is larger than 32 MiB: split it"):
        documents.read_all(["/dev/zero"])


@pytest.mark.parametrize("missing", ["nothing.yaml", "."])
def test_a_file_that_cannot_be_read_is_missing(missing: str, tmp_path: Path) -> None:
    with pytest.raises(Missing, match="cannot be read: "):
        documents.read_all([str(tmp_path / missing)])


def test_values_are_those_that_kubernetes_reads() -> None:
    text = b"1: 1\ntrue: no\nday: 2024-01-01\nmerged: {<<: &m {a: 1, b: 2}, a: 3}\nsame: *m\n"
    (document,) = documents.read("f", text)
    assert document.content == {
        "1": 1,
        "true": False,
        "day": "2024-01-01",
        "merged": {"a": 3, "b": 2},
        "same": {"a": 1, "b": 2},
    }


def test_objects_of_several_documents_and_of_lists_know_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"""\
kind: A
---
# nothing
---
kind: List
items:
- kind: B
- kind: List
  items:
  - {kind: C, metadata: {name: c, namespace: n}}
---
{"kind": "D", "spec": {"zones": ["a",
  "b"]}}
"""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    found = documents.read_all(["-"])
    assert [(one.title, one.file, one.line("")) for one in found] == [
        ("A ", "-", 1),
        ("B ", "-", 7),
        ("C n/c", "-", 10),
        ("D ", "-", 12),
    ]
    assert found[3].line("spec.zones[1]") == 13


_SHOOT = b"""\
metadata:
  labels:
    a.b/c: d
spec:
  zones: [{
    name: a}]
"""


@cases(
    "path line",
    ("field", "spec.zones[0].name", 6),
    ("key-with-dots", "metadata.labels[a.b/c]", 3),
    ("missing-field", "spec.zones[0].workers", 5),
    ("missing-entry", "spec.zones[7].name", 5),
    ("nothing-of-it", "networks.zones", 1),
    ("without-spec", "zones[0].name", 6),
    ("index-as-name", "spec.zones.0.name", 6),
    ("index-of-many-digits", "spec.zones.99999999999999999999.name", 5),
    ("no-field", "", 1),
)
def test_a_line_is_that_of_the_innermost_part_that_exists(path: str, line: int) -> None:
    (document,) = documents.read("f", _SHOOT)
    assert document.line(path) == line


def test_a_title_cannot_write_to_a_terminal() -> None:
    (document,) = documents.read("f", b'{kind: Shoot, metadata: {name: "a\\e[2Jb\\nc"}}')
    assert document.title == "Shoot a?[2Jb?c"
