"""Answers to reviews, malformed ones included, and the JSON patches in answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.admitted import DELETED, resource
from tests.support.cases import cases
from tests.support.patching import patched
from tests.support.reviews import UID, admission_review, mutated
from tests.support.rules import rule
from webhooks import answering, jsonpatch
from webhooks.review import Context, Denied, Review, Undecodable, Webhook
from windowbox.models.objects import Json
from windowbox.models.webhooks import NODE

Act = Callable[[Review, Context], Json]
OBJECT = resource("v1 Node", "one", "", spec={"taints": [{"key": "a"}]}, status={})


def answered(act: Any, body: bytes, **webhook: Any) -> Json:
    """The encoded answer of a webhook with this function."""
    made = Webhook(NODE, act, **webhook)
    asked = answering.read(made, body)
    if isinstance(asked, tuple):
        answer, uid, version = asked
        return dict(orjson.loads(answer.encoded(uid, version)))
    answer = answering.decide(made, asked.review, Context())
    return dict(orjson.loads(answer.encoded(asked.review.uid, asked.version)))


def body(version: str = "", **request: Any) -> bytes:
    asked = admission_review(OBJECT, "nodes", **request)
    return json.dumps(asked | ({"apiVersion": version} if version else {})).encode()


def returns(**change: Any) -> Act:
    return lambda review, _: {**review.object, **change}


def raises(error: Exception) -> Act:
    def act(review: Review, context: Context) -> Json:
        raise error

    return act


DENIES = raises(Denied("spec.x: Required value: no"))
NEVER = raises(AssertionError("must not be asked"))
POD = {"group": "", "version": "v1", "kind": "Pod"}


@rule("WF-40", "WF-41", "WF-47")
@pytest.mark.parametrize("version", ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"])
def test_a_change_is_answered_with_a_patch(version: str) -> None:
    found = answered(returns(spec={**OBJECT["spec"], "providerID": "x"}), body(version))
    assert (found["apiVersion"], found["kind"]) == (version, "AdmissionReview")
    answer = found["response"]
    assert (answer["uid"], answer["allowed"], answer["patchType"]) == (UID, True, "JSONPatch")
    assert answer["status"] == {"metadata": {}, "code": 200}
    assert mutated(OBJECT, answer)["spec"] == {"taints": [{"key": "a"}], "providerID": "x"}


@rule("WF-46")
@cases("act", ("nothing", lambda review, _: None), ("an-empty-field", returns(status={"x": []})))
def test_no_change_is_answered_without_a_patch(act: Any) -> None:
    found = answered(act, body())["response"]
    assert found == {"uid": UID, "allowed": True, "status": {"metadata": {}, "code": 200}}


@cases(
    "act request_ message code",
    ("WF-45-denied", DENIES, {}, "spec.x: Required value: no", 403),
    ("WF-42-kind", NEVER, {"kind": POD}, "unexpected request kind /v1, Kind=Pod", 400),
    ("undecodable", raises(Undecodable("replicas is no number")), {}, "replicas is no number", 400),
)
def test_a_refusal_has_code_and_message(act: Act, request_: Json, message: str, code: int) -> None:
    found = answered(act, body(**request_))["response"]
    reason = {"reason": "Forbidden"} if code == 403 else {}
    status = {"metadata": {}, "message": message, "code": code, **reason}
    assert found == {"uid": UID, "allowed": False, "status": status}


@rule("WF-49")
def test_the_answer_to_a_bug_quotes_no_object(caplog: pytest.LogCaptureFixture) -> None:
    found = answered(raises(KeyError("a secret of the object")), body())["response"]
    assert not found["allowed"]
    assert found["status"] == {"metadata": {}, "message": "panic: KeyError [recovered]", "code": 500}
    assert "KeyError in" in caplog.text
    assert "secret" not in caplog.text


@rule("WW-3")
@pytest.mark.parametrize(("skip", "allowed"), [(True, True), (False, False)])
def test_objects_under_deletion(skip: bool, allowed: bool) -> None:
    asked = body(object={**OBJECT, "metadata": {"name": "one", **DELETED}})
    found = answered(DENIES, asked, skip_deleting=skip)["response"]
    assert found["allowed"] is allowed


@rule("WF-40", "WF-43")
@cases(
    "asked",
    ("empty", b""),
    ("no-json", b"{"),
    ("no-text", b"\xff\xfe"),
    ("a-list", b"[]"),
    ("null", b"null"),
    ("no-review", b"{}"),
    ("other-version", body("v1")),
    ("request-is-a-number", json.dumps({**orjson.loads(body()), "request": 3}).encode()),
    ("no-request", json.dumps({**orjson.loads(body()), "request": None}).encode()),
    ("no-object", body(object=None)),
    ("object-is-a-list", body(object=[1])),
    ("metadata-is-a-number", body(object={"metadata": 3})),
    ("old-object-is-a-string", body(oldObject="x")),
    ("uid-is-a-number", body(uid=3)),
    ("kind-is-a-string", body(kind="Node")),
    ("namespace-is-an-object", body(namespace={})),
    ("long-namespace", body(namespace="n" * 254)),
    ("long-name", body(name="n" * 254)),
    ("long-name-of-the-object", body(object={"metadata": {"name": "n" * 254}})),
    ("long-namespace-of-the-old", body(oldObject={"metadata": {"namespace": "n" * 254}})),
    ("deep", b'{"a":' * 5000 + b"1" + b"}" * 5000),
)
def test_a_malformed_review_is_answered_with_code_400(asked: bytes) -> None:
    found = answered(NEVER, asked)["response"]
    assert (found["allowed"], found["status"]["code"]) == (False, 400)
    assert found["status"]["message"]


def test_an_object_that_is_nested_too_deep_is_refused() -> None:
    deep, other = (orjson.loads(b"[" * 900 + end + b"]" * 900) for end in (b"1", b"2"))
    asked = body(object={**OBJECT, "spec": {"deep": deep}})
    found = answered(returns(spec={"deep": other}), asked)["response"]
    assert (found["allowed"], found["status"]["code"]) == (False, 400)


def test_a_long_message_is_cut_for_the_journal() -> None:
    webhook = Webhook(NODE, raises(Denied("x" * 10_000)))
    asked = answering.read(webhook, body())
    assert isinstance(asked, answering.Asked)
    assert len(answering.decide(webhook, asked.review, Context()).message) == 4096


KEYS = st.text("ab/~", max_size=2)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@rule("WF-47", "WF-48")
@given(VALUES, VALUES)
def test_a_patch_leads_from_one_value_to_the_other(old: Any, new: Any) -> None:
    patch = jsonpatch.between(old, new)
    found = patched(old, patch)
    assert jsonpatch.alike(found, new)


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


def test_shared_parts_are_not_compared() -> None:
    shared: list[Any] = []
    shared.append(shared)  # comparing it would never end
    patch = jsonpatch.between({"a": shared, "b": 1}, {"a": shared, "b": 2})
    assert patch == [{"op": "replace", "path": "/b", "value": 2}]


def test_true_is_not_one() -> None:
    assert jsonpatch.between({"a": 1}, {"a": True}) == [{"op": "replace", "path": "/a", "value": True}]
