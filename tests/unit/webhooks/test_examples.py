"""The contract's examples, one of each kind of AdmissionReview."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.admissionexamples import Example, examples
from tests.support.patching import patched
from tests.support.reviews import changed
from webhooks import answering
from webhooks.answering import Answer


def answered(example: Example, object: Any = None) -> Answer:
    review = example.review()
    if object is not None:
        review["request"]["object"] = object
    asked = answering.read(example.webhook, json.dumps(review).encode())
    if isinstance(asked, tuple):
        return asked[0]
    return answering.decide(example.webhook, asked.review, example.context)


@pytest.mark.parametrize("example", [pytest.param(one, id=one.name) for one in examples()])
def test_a_review_is_answered_as_gardener_answers_it(example: Example) -> None:
    answer = answered(example)
    assert answer.message == example.denied
    assert answer.code == example.fields.get("code", 200)
    if not example.denied:
        assert changed(example.object, answer) == patched(example.object, example.patch)


ALLOWED = [one for one in examples() if not one.denied]


@pytest.mark.parametrize("example", [pytest.param(one, id=f"WW-12-{one.name}") for one in ALLOWED])
def test_what_was_changed_once_is_not_changed_again(example: Example) -> None:
    once = changed(example.object, answered(example))
    assert answered(example, once).patch == b""


@pytest.mark.parametrize("example", [pytest.param(one, id=f"WW-5-{one.name}") for one in ALLOWED])
def test_no_webhook_changes_what_it_is_given(example: Example) -> None:
    before = json.dumps(example.object)
    answered(example)
    assert json.dumps(example.object) == before


@pytest.mark.parametrize("example", [pytest.param(one, id=one.name) for one in examples()])
def test_a_webhook_has_its_lookup_only_where_it_needs_it(example: Example) -> None:
    asked = answering.read(example.webhook, json.dumps(example.review()).encode())
    if isinstance(asked, tuple):
        return
    skipped = asked.review.deleting and example.webhook.skip_deleting
    wanted = None if skipped else example.webhook.lookup(asked.review)
    known = example.fields.get("found") or example.fields.get("failure")
    assert (wanted is not None) == bool(known)
    if isinstance(known, dict):
        assert wanted is not None
        assert (wanted.name, wanted.namespace) == (
            known["metadata"]["name"],
            known["metadata"].get("namespace", ""),
        )


def test_every_webhook_has_an_example() -> None:
    paths = {one.webhook.registration.name for one in examples()}
    assert len(examples()) == 30
    assert paths == {
        "calico-self-hosted-shoot", "controlplane", "dnsconfig", "mutator", "networkpolicy", "node",
        "prometheus", "rollout-speedup", "secrets.validator", "shoot", "validator",
    }  # fmt: skip
