"""Texts that nobody would write: they are refused within a moment, with a reason."""

from __future__ import annotations

import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from webhooks.mutators import componentconfig, units

_BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{next_}: &{next_} [{', '.join([f'*{last}'] * 10)}]\n"
    for last, next_ in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 100_000, id="brackets"),
        pytest.param("a: " + "{a: " * 50_000, id="braces"),
        pytest.param("- " * 100_000, id="compact-lists"),
        pytest.param("? " * 100_000, id="complex-keys"),
        pytest.param("\n".join(" " * k + "a:" for k in range(600)), id="indentation"),
        pytest.param(_BOMB + "clusterDNS: *j\n", id="a-bomb-of-aliases"),
        pytest.param("x: " + "y" * 1_000_000, id="too-long"),
        pytest.param("clusterDomain: \ud800", id="half-a-character"),
        pytest.param("clusterDomain: \x00", id="a-null-byte"),
        pytest.param("<<: {a: 1}", id="a-merge"),
        pytest.param("clusterDomain: &a [*a]", id="a-circle"),
        pytest.param("failSwapOn: [true]", id="a-list-instead-of-a-scalar"),
        pytest.param("failSwapOn: !!python/name:os.system x", id="a-tag"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused_soon(text: str) -> None:
    began = time.process_time()
    with pytest.raises(componentconfig.Unreadable):
        componentconfig.allow_swap(text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("maxPods: " + "9" * 200_000, id="a-long-number"),
        pytest.param("maxPods: " + "1:" * 100_000 + "1", id="a-sexagesimal-number"),
        pytest.param("clusterDomain: !!python/name:os.system x", id="a-tag"),
        pytest.param("syncFrequency: " + "1h" * 100_000, id="a-long-duration"),
        pytest.param("a:\n" + "- {a: b}\n" * 25_000, id="many-small-objects"),
    ],
)
def test_a_strange_field_is_kept_soon(text: str) -> None:
    began = time.process_time()
    found = componentconfig.allow_swap(text)
    assert time.process_time() - began < 2
    assert yaml.load(found, Loader=yaml.BaseLoader).items() > (
        yaml.load(text, Loader=yaml.BaseLoader).items()
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[A]\n" + "x=y \\\n" * 50_000, id="many-lines-of-one-value"),
        pytest.param("[A]\n" * 100_000, id="many-sections"),
        pytest.param("# \\\n" * 100_000, id="a-long-comment"),
        pytest.param("\n" * 500_000, id="nothing"),
    ],
)
def test_a_large_unit_takes_a_moment(text: str) -> None:
    began = time.process_time()
    units.normalised(text)
    assert time.process_time() - began < 2


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for edit in (componentconfig.allow_swap, componentconfig.keep_conntrack, units.normalised):
        try:
            found = edit(text)
        except (componentconfig.Unreadable, units.BadUnit):
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
def test_unknown_fields_stay_in_every_style(
    written: tuple[str | None, dict[str, object]], flow: bool | None
) -> None:
    style, fields = written
    text = yaml.dump(fields, Dumper=yaml.CSafeDumper, default_style=style, default_flow_style=flow)
    found = yaml.load(componentconfig.allow_swap(text), Loader=yaml.CSafeLoader)
    head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    assert found == yaml.load(text, Loader=yaml.CSafeLoader) | head | {"failSwapOn": False}
