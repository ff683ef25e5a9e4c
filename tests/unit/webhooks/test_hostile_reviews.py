"""Objects that no API server would send: each is answered within a moment, and none is a bug."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.admissionexamples import Example, examples
from tests.support.cases import cases
from tests.support.reviews import changed
from tests.support.rules import rule
from webhooks import answering
from webhooks.answering import Answer

EXAMPLES = [one for one in examples() if one.name != "WA-28"]  # its kind is not served

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def code(example: Example, body: dict[str, Any], context: Any = None) -> int:
    """The code of the answer, which is complete in any case."""
    asked = answering.read(example.webhook, json.dumps(body).encode())
    if isinstance(asked, tuple):
        return asked[0].code
    example.webhook.lookup(asked.review)
    answer = answering.decide(example.webhook, asked.review, context or example.context)
    assert answer.allowed == (answer.code == 200)
    assert json.loads(answer.encoded())["response"]["status"]["code"] == answer.code
    return answer.code


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in an object."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*path, key))


def put(value: Any, path: tuple[Any, ...], replacement: Any) -> Any:
    if not path:
        return replacement
    changed = copy.copy(value)
    changed[path[0]] = put(value[path[0]], path[1:], replacement)
    return changed


WRONG: tuple[Any, ...] = (None, 0, True, "", "x", [], {}, [None], [[]], {"a": None}, [{"name": 5}])


@rule("WF-43", "WF-49")
@pytest.mark.parametrize("example", [pytest.param(one, id=one.name) for one in EXAMPLES])
def test_no_field_of_a_wrong_type_is_a_bug(example: Example) -> None:
    for path in paths(example.object):
        for wrong in WRONG:
            body = example.review()
            body["request"]["object"] = put(example.object, path, wrong)
            assert code(example, body) in (200, 400, 403), (path, wrong)


@rule("WF-44", "WF-49")
@pytest.mark.parametrize(
    "example", [pytest.param(one, id=one.name) for one in EXAMPLES if "found" in one.fields]
)
def test_no_lookup_of_a_wrong_type_is_a_bug(example: Example) -> None:
    found = example.fields["found"]
    for path in list(paths(found))[1:]:
        for wrong in WRONG:
            changed = put(found, path, wrong)
            context = copy.copy(example.context)
            object.__setattr__(context, "found", changed)
            assert code(example, example.review(), context) in (200, 400, 403), (path, wrong)


@rule("WF-43", "WF-49")
@given(st.data())
def test_no_object_is_a_bug(data: st.DataObject) -> None:
    example = data.draw(st.sampled_from(EXAMPLES))
    path = data.draw(st.sampled_from(list(paths(example.object))))
    body = example.review()
    body["request"]["object"] = put(example.object, path, data.draw(_VALUES))
    assert code(example, body) in (200, 400, 403)


@rule("WW-12")
@given(st.data())
def test_webhooks_are_idempotent(data: st.DataObject) -> None:
    example = data.draw(st.sampled_from(EXAMPLES))
    path = data.draw(st.sampled_from(list(paths(example.object))))
    body = example.review()
    body["request"]["object"] = put(example.object, path, data.draw(_VALUES))
    answer = decided(example, body)
    if answer.allowed:
        body["request"]["object"] = changed(body["request"]["object"], answer)
        again = decided(example, body)
        assert (again.allowed, again.patch) == (True, b"")


def decided(example: Example, body: dict[str, Any]) -> Answer:
    asked = answering.read(example.webhook, json.dumps(body).encode())
    if isinstance(asked, tuple):
        return asked[0]
    return answering.decide(example.webhook, asked.review, example.context)


def many(example: Example, key: str, entry: Any, count: int) -> dict[str, Any]:
    """The example with very many of something."""
    body = example.review()
    place = next(path for path in paths(example.object) if path and path[-1] == key)
    body["request"]["object"] = put(example.object, place, [copy.deepcopy(entry) for _ in range(count)])
    return body


BY_NAME = {one.name: one for one in examples()}


@rule("WF-43")
@cases(
    "name key entry",
    ("files", "WA-1", "files", {"path": "x", "content": {"inline": {"data": "y" * 40}}}),
    ("containers", "WA-3", "containers", {"name": "a", "image": "b"}),
    ("policies", "WA-4", "containerPolicies", {"containerName": "a"}),
    ("egress", "WA-9", "egress", {"to": [{"ipBlock": {"except": ["172.18.0.0/24"]}}]}),
    ("env", "WA-13", "env", {"name": "a", "value": "b"}),
    ("images", "WA-17", "machineImages", {"name": "a", "versions": []}),
    ("workers", "WA-18", "workers", {"name": "a"}),
)
def test_many_of_something_take_a_moment(name: str, key: str, entry: Any) -> None:
    began = time.process_time()
    assert code(BY_NAME[name], many(BY_NAME[name], key, entry, 10_000)) in (200, 400, 403)
    assert time.process_time() - began < 5


@rule("WF-43")
@pytest.mark.parametrize("example", [pytest.param(one, id=one.name) for one in EXAMPLES])
def test_an_object_that_is_nested_deep_is_answered(example: Example) -> None:
    text = json.dumps(example.review())
    deep = '{"a":' * 20_000 + "1" + "}" * 20_000
    body = text.replace('"metadata": {', '"metadata": {"annotations": ' + deep + ", ", 1).encode()
    asked = answering.read(example.webhook, body)
    assert isinstance(asked, tuple)
    assert asked[0].code == 400
