"""Texts that nobody would write: they are refused within a moment, with a reason."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhooks.configs import componentconfig, durations, goyaml, units

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
        pytest.param("maxPods: " + "9" * 200_000, id="a-long-number"),
        pytest.param("maxPods: " + "1:" * 100_000, id="a-sexagesimal-number"),
        pytest.param("x: " + "y" * 1_000_000, id="too-long"),
        pytest.param("clusterDomain: \ud800", id="half-a-character"),
        pytest.param("clusterDomain: \x00", id="a-null-byte"),
        pytest.param("clusterDomain: !!python/name:os.system x", id="a-tag"),
        pytest.param("<<: {a: 1}", id="a-merge"),
        pytest.param("clusterDomain: &a [*a]", id="a-circle"),
        pytest.param("syncFrequency: " + "1h" * 100_000, id="a-long-duration"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused_soon(text: str) -> None:
    began = time.process_time()
    with pytest.raises(componentconfig.Unreadable):
        componentconfig.for_machine(text)
    assert time.process_time() - began < 2


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
    for make in (componentconfig.for_machine, componentconfig.for_containers, units.normalised):
        try:
            made = make(text)
        except (componentconfig.Unreadable, units.BadUnit):
            continue
        assert make(made) == made


_LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
_KEYS = st.text().filter(lambda key: key != "<<")  # that would be a merge


def _nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(inner) | st.dictionaries(_KEYS, inner)


@given(st.recursive(_LEAVES, _nested, max_leaves=12))
def test_what_is_written_is_read_again(value: object) -> None:
    assert goyaml.load(goyaml.dump(value)) == value


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_duration_is_read_as_it_is_spelled(nanoseconds: int) -> None:
    assert durations.parsed(durations.spelled(nanoseconds)) == nanoseconds
