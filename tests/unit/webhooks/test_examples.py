"""The contract's examples of AdmissionReviews, as they are and with fields that no API server would send."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.admissionexamples import Example, examples
from tests.support.admitted import decided
from tests.support.cases import cases
from tests.support.patching import patched
from tests.support.reviews import changed
from tests.support.rules import rule
from webhooks import answering
from webhooks.answering import Answer
from webhooks.review import Found, Wanted

BY_NAME = {one.name: one for one in examples()}
SERVED = [one for one in examples() if one.name != "WA-28"]  # no webhook serves its kind
ALLOWED = [one for one in examples() if not one.denied]


def each(of: Iterable[Example], rules: str = "") -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", [pytest.param(one, id=rules + one.name) for one in of])


def answered(example: Example, object: Any = None, found: Found | None = None) -> Answer:
    """The answer about the example, or about another object or with another lookup."""
    review = example.review()
    if object is not None:
        review["request"]["object"] = object
    asked = answering.read(example.webhook, json.dumps(review).encode())
    if isinstance(asked, tuple):
        return asked[0]
    return decided(example.webhook, asked.review, example.context, found or example.found)


@each(examples())
def test_a_review_is_answered_as_gardener_answers_it(example: Example) -> None:
    answer = answered(example)
    assert answer.message == example.denied
    assert answer.code == example.fields.get("code", 200)
    if not example.denied:
        assert changed(example.object, answer) == patched(example.object, example.patch)


@each(ALLOWED, "WW-12-")
def test_a_changed_object_is_not_changed_again(example: Example) -> None:
    once = changed(example.object, answered(example))
    assert answered(example, once).patch == b""


@each(ALLOWED, "WW-5-")
def test_no_webhook_changes_the_given_object(example: Example) -> None:
    before = json.dumps(example.object)
    answered(example)
    assert json.dumps(example.object) == before


@each(examples())
def test_a_webhook_has_its_lookup_only_where_it_needs_it(example: Example) -> None:
    asked = answering.read(example.webhook, json.dumps(example.review()).encode())
    if isinstance(asked, tuple):
        return
    wanted = None
    try:
        answering.decide(example.webhook, asked.review, example.context)
    except Wanted as error:
        wanted = error.lookup
    known = example.fields.get("found") or example.fields.get("failure")
    assert (wanted is not None) == bool(known)
    if isinstance(known, dict):
        assert wanted is not None
        place = known["metadata"]["name"], known["metadata"].get("namespace", "")
        assert (wanted.name, wanted.namespace) == place


def test_every_webhook_has_an_example() -> None:
    assert len(examples()) == 30
    assert {one.webhook.registration.name for one in examples()} == {
        *("calico-self-hosted-shoot", "controlplane", "dnsconfig", "mutator", "networkpolicy", "node"),
        *("prometheus", "rollout-speedup", "secrets.validator", "shoot", "validator"),
    }


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
WRONG: tuple[Any, ...] = (None, 0, True, "", "x", [], {}, [None], [[]], {"a": None}, [{"name": 5}])


def assert_no_bug(answer: Answer, *about: Any) -> None:
    """The answer is complete, and none of a bug, whose code is 500."""
    assert answer.code in (200, 400, 403), about
    assert answer.allowed == (answer.code == 200)
    assert json.loads(answer.encoded())["response"]["status"]["code"] == answer.code


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


@rule("WF-43", "WF-49")
@each(SERVED)
def test_no_field_of_a_wrong_type_is_a_bug(example: Example) -> None:
    for path in paths(example.object):
        for wrong in WRONG:
            if path or wrong is not None:
                assert_no_bug(answered(example, put(example.object, path, wrong)), path, wrong)


@rule("WF-44", "WF-49")
@each(one for one in SERVED if "found" in one.fields)
def test_no_lookup_of_a_wrong_type_is_a_bug(example: Example) -> None:
    found = example.fields["found"]
    for path in list(paths(found))[1:]:
        for wrong in WRONG:
            wrongly = Found(put(found, path, wrong))
            assert_no_bug(answered(example, found=wrongly), path, wrong)


@rule("WF-43", "WF-49", "WW-12")
@given(st.data())
def test_no_object_is_a_bug_and_answers_are_idempotent(data: st.DataObject) -> None:
    example = data.draw(st.sampled_from(SERVED))
    path = data.draw(st.sampled_from(list(paths(example.object))))
    object = put(example.object, path, data.draw(_VALUES))
    if object is None:
        return  # no object at all: tests/unit/webhooks/test_answering.py
    answer = answered(example, object)
    assert_no_bug(answer)
    if answer.allowed:
        again = answered(example, changed(object, answer))
        assert (again.allowed, again.patch) == (True, b"")


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
def test_ten_thousand_entries_take_a_moment(name: str, key: str, entry: Any) -> None:
    example = BY_NAME[name]
    place = next(path for path in paths(example.object) if path and path[-1] == key)
    object = put(example.object, place, [copy.deepcopy(entry) for _ in range(10_000)])
    began = time.process_time()
    assert_no_bug(answered(example, object))
    assert time.process_time() - began < 5


@rule("WF-43")
@each(SERVED)
def test_an_object_that_is_nested_deep_is_answered(example: Example) -> None:
    text = json.dumps(example.review())
    deep = '{"a":' * 20_000 + "1" + "}" * 20_000
    body = text.replace('"metadata": {', '"metadata": {"annotations": ' + deep + ", ", 1).encode()
    asked = answering.read(example.webhook, body)
    assert isinstance(asked, tuple)
    assert asked[0].code == 400
