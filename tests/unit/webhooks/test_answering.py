"""What is answered to a review, whatever is in it."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from tests.support.cases import cases
from tests.support.reviews import UID, admission_review, mutated
from tests.support.rules import rule
from webhooks import answering
from webhooks.review import Context, Denied, Review, Undecodable, Webhook
from windowbox.models.objects import Json
from windowbox.models.webhooks import NODE

OBJECT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "one"},
    "spec": {"taints": [{"key": "a"}]},
    "status": {},
}


def answered(act: Any, body: bytes, **webhook: Any) -> dict[str, Any]:
    made = Webhook(NODE, act, **webhook)
    asked = answering.read(made, body)
    if isinstance(asked, tuple):
        answer, uid, version = asked
        return dict(orjson.loads(answer.encoded(uid, version)))
    answer = answering.decide(made, asked.review, Context())
    return dict(orjson.loads(answer.encoded(asked.review.uid, asked.version)))


def body(**request: Any) -> bytes:
    return json.dumps(admission_review(OBJECT, "nodes", **request)).encode()


def renamed(review: Review, context: Context) -> Json:
    return {**review.object, "spec": {**review.object["spec"], "providerID": "x"}}


def denies(review: Review, context: Context) -> Json:
    raise Denied("spec.x: Required value: no")


def fails(review: Review, context: Context) -> Json:
    raise KeyError("a secret of the object")


def never(review: Review, context: Context) -> Json:
    raise AssertionError("must not be asked")


@rule("WF-40", "WF-41", "WF-47")
@pytest.mark.parametrize("version", ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"])
def test_a_change_is_answered_with_a_patch(version: str) -> None:
    found = answered(renamed, json.dumps({**json.loads(body()), "apiVersion": version}).encode())
    assert (found["apiVersion"], found["kind"]) == (version, "AdmissionReview")
    answer = found["response"]
    assert (answer["uid"], answer["allowed"], answer["patchType"]) == (UID, True, "JSONPatch")
    assert answer["status"] == {"metadata": {}, "code": 200}
    assert mutated(OBJECT, answer)["spec"] == {"taints": [{"key": "a"}], "providerID": "x"}


@rule("WF-46")
@cases(
    "act",
    ("nothing", lambda review, _: None),
    ("an-empty-field", lambda review, _: {**review.object, "status": {"x": []}}),
)
def test_no_change_is_answered_without_a_patch(act: Any) -> None:
    found = answered(act, body())["response"]
    assert found == {"uid": UID, "allowed": True, "status": {"metadata": {}, "code": 200}}


@rule("WF-45")
def test_a_denial_has_code_403_and_the_reason() -> None:
    found = answered(denies, body())["response"]
    status = {"metadata": {}, "message": "spec.x: Required value: no", "reason": "Forbidden", "code": 403}
    assert found == {"uid": UID, "allowed": False, "status": status}


@rule("WF-49")
def test_a_bug_is_answered_without_what_the_object_holds(caplog: pytest.LogCaptureFixture) -> None:
    found = answered(fails, body())["response"]
    assert not found["allowed"]
    assert found["status"] == {"metadata": {}, "message": "panic: KeyError [recovered]", "code": 500}
    assert "KeyError in" in caplog.text
    assert "secret" not in caplog.text


@rule("WW-3")
@pytest.mark.parametrize(("skip", "allowed"), [(True, True), (False, False)])
def test_objects_under_deletion(skip: bool, allowed: bool) -> None:
    metadata = {"name": "one", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    asked = body(object={**OBJECT, "metadata": metadata})
    found = answered(denies, asked, skip_deleting=skip)["response"]
    assert found["allowed"] is allowed


@rule("WF-42")
def test_a_kind_that_is_not_served() -> None:
    found = answered(never, body(kind={"group": "", "version": "v1", "kind": "Pod"}))["response"]
    assert found == {
        "uid": UID,
        "allowed": False,
        "status": {"metadata": {}, "message": "unexpected request kind /v1, Kind=Pod", "code": 400},
    }


@rule("WF-40", "WF-43")
@cases(
    "asked",
    ("empty", b""),
    ("no-json", b"{"),
    ("no-text", b"\xff\xfe"),
    ("a-list", b"[]"),
    ("null", b"null"),
    ("no-review", b"{}"),
    ("other-version", json.dumps({**json.loads(body()), "apiVersion": "v1"}).encode()),
    ("request-is-a-number", json.dumps({**json.loads(body()), "request": 3}).encode()),
    ("no-request", json.dumps({**json.loads(body()), "request": None}).encode()),
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
def test_what_cannot_be_read_is_answered_with_code_400(asked: bytes) -> None:
    found = answered(never, asked)["response"]
    assert (found["allowed"], found["status"]["code"]) == (False, 400)
    assert found["status"]["message"]


def test_an_object_that_is_nested_too_deep_is_refused() -> None:
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    asked = orjson.loads(body())

    def wraps(review: Review, _: Context) -> Json:
        return {**review.object, "spec": {"deep": orjson.loads(b"[" * 900 + b"2" + b"]" * 900)}}

    asked["request"]["object"]["spec"] = {"deep": deep}
    found = answered(wraps, json.dumps(asked).encode())["response"]
    assert (found["allowed"], found["status"]["code"]) == (False, 400)


def test_a_webhook_that_cannot_decode_the_object_refuses_with_code_400() -> None:
    def undecodable(review: Review, _: Context) -> Json:
        raise Undecodable("spec.replicas is not a number")

    found = answered(undecodable, body())["response"]
    assert found["status"] == {"metadata": {}, "message": "spec.replicas is not a number", "code": 400}


def test_a_long_message_is_cut_before_it_is_noted() -> None:
    def denied(review: Review, _: Context) -> Json:
        raise Denied("x" * 10_000)

    webhook = Webhook(NODE, denied)
    asked = answering.read(webhook, body())
    assert isinstance(asked, answering.Asked)
    assert len(answering.decide(webhook, asked.review, Context()).message) == 4096
