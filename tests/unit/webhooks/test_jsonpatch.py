"""JSON patches, compared by applying them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.patching import patched
from tests.support.rules import rule
from webhooks import jsonpatch

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=4)
    ),
    max_leaves=20,
)


@rule("WF-47", "WF-48")
@given(VALUES, VALUES)
def test_a_patch_leads_from_one_value_to_the_other(old: Any, new: Any) -> None:
    patch = jsonpatch.between(old, new)
    found = patched(old, patch)
    assert jsonpatch.alike(found, new)
    if patch:
        assert found == new


@rule("WF-46")
@cases(
    "old new",
    ("empty-mapping", {"a": {}}, {}),
    ("null-and-empty-list", {"a": None}, {"a": []}),
    ("nested", {"a": {"b": {"c": []}}}, {"a": {"b": {}}}),
    ("in-a-list", [{"a": None}], [{}]),
)
def test_empty_fields_are_no_difference(old: Any, new: Any) -> None:
    assert jsonpatch.between(old, new) == []


def test_parts_that_both_share_are_not_compared() -> None:
    shared: list[Any] = []
    shared.append(shared)  # comparing it would never end
    assert jsonpatch.between({"a": shared, "b": 1}, {"a": shared, "b": 2}) == [
        {"op": "replace", "path": "/b", "value": 2}
    ]


def test_true_is_not_one() -> None:
    assert jsonpatch.between({"a": 1}, {"a": True}) == [{"op": "replace", "path": "/a", "value": True}]
