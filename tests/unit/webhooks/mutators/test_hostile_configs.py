"""Hostile texts are refused quickly, with a reason."""

from __future__ import annotations

import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from webhooks.mutators import componentconfig, operatingsystemconfig

_BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{next_}: &{next_} [{', '.join([f'*{last}'] * 10)}]\n"
    for last, next_ in zip("abcdefghi", "bcdefghij", strict=True)
)


@cases(
    "text",
    ("brackets", "[" * 100_000),
    ("braces", "a: " + "{a: " * 50_000),
    ("compact-lists", "- " * 100_000),
    ("complex-keys", "? " * 100_000),
    ("indentation", "\n".join(" " * k + "a:" for k in range(600))),
    ("a-bomb-of-aliases", _BOMB + "clusterDNS: *j\n"),
    ("too-long", "x: " + "y" * 1_000_000),
    ("too-many-values", "a: [" + "[]," * 5_000 + "]"),
    ("half-a-character", "clusterDomain: \ud800"),
    ("a-null-byte", "clusterDomain: \x00"),
    ("a-merge", "<<: {a: 1}"),
    ("a-circle", "clusterDomain: &a [*a]"),
    ("a-list-instead-of-a-scalar", "failSwapOn: [true]"),
    ("a-tag", "failSwapOn: !!python/name:os.system x"),
)
def test_a_hostile_configuration_is_refused_quickly(text: str) -> None:
    began = time.process_time()
    with pytest.raises(componentconfig.Unreadable):
        componentconfig.allow_swap(text)
    assert time.process_time() - began < 2


@cases(
    "text",
    ("a-long-number", "maxPods: " + "9" * 200_000),
    ("a-sexagesimal-number", "maxPods: " + "1:" * 100_000 + "1"),
    ("a-tag", "clusterDomain: !!python/name:os.system x"),
    ("a-long-duration", "syncFrequency: " + "1h" * 100_000),
    ("many-small-objects", "a:\n" + "- {a: b}\n" * 1_000),
)
def test_an_unusual_field_is_kept_quickly(text: str) -> None:
    began = time.process_time()
    found = componentconfig.allow_swap(text)
    assert time.process_time() - began < 2
    assert yaml.load(found, Loader=yaml.BaseLoader).items() > (
        yaml.load(text, Loader=yaml.BaseLoader).items()
    )


@cases(
    "text",
    ("many-lines-of-one-value", "[A]\n" + "x=y \\\n" * 10_000),
    ("many-sections", "[A]\n" * 16_000),
    ("a-long-comment", "# \\\n" * 16_000),
    ("nothing", "\n" * 65_000),
)
def test_a_large_unit_takes_a_moment(text: str) -> None:
    began = time.process_time()
    operatingsystemconfig.normalised(text)
    assert time.process_time() - began < 2
    with pytest.raises(operatingsystemconfig.BadUnit, match="longer than 64 KiB"):
        operatingsystemconfig.normalised(2 * text)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for edit in (
        componentconfig.allow_swap,
        componentconfig.keep_conntrack,
        operatingsystemconfig.normalised,
    ):
        try:
            found = edit(text)
        except (componentconfig.Unreadable, operatingsystemconfig.BadUnit):
            continue
        assert edit(found) == found


_LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
_KEYS = st.text(min_size=1).filter(lambda key: key not in ("<<", "kind", "apiVersion", "failSwapOn"))


def _fields(leaves: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    def nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        return st.lists(inner) | st.dictionaries(_KEYS, inner)

    return st.dictionaries(_KEYS, st.recursive(leaves, nested, max_leaves=12))


@given(
    st.tuples(st.none(), _fields(_LEAVES)) | st.tuples(st.sampled_from("'\"|>"), _fields(st.text())),
    st.sampled_from([None, True, False]),
)
def test_unknown_fields_stay(written: tuple[str | None, dict[str, object]], flow: bool | None) -> None:
    style, fields = written
    text = yaml.dump(fields, Dumper=yaml.CSafeDumper, default_style=style, default_flow_style=flow)
    found = yaml.load(componentconfig.allow_swap(text), Loader=yaml.CSafeLoader)
    head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    assert found == yaml.load(text, Loader=yaml.CSafeLoader) | head | {"failSwapOn": False}
