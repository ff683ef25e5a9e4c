"""Messages of older and newer versions."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from bus import schema, subjects
from bus.clusters import registry
from bus.messages import (
    Call,
    EventIntent,
    Message,
    Read,
    Reason,
    Result,
    ReviewRecord,
    RunRecord,
    StatusIntent,
    Wish,
)
from bus.schema import Schema
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.errors import Malformed, Refused
from windowbox.models.refs import ObjectRef, SecretKey
from workers.loadbalancer import edgestate
from workers.loadbalancer.ipam import entries

RUN = {
    "pool": "dnsrecord",
    "key": "runtime.dnsrecords.demo.web",
    "wish": {"reason": "drift", "attempt": 2},
    "wish_sequence": 7,
    "delivery": 1,
    "started": "2025-01-01T00:00:00Z",
    "seconds": 0.1,
    "process": "host/1",
    "outcome": "asserted again",
}


@pytest.mark.parametrize(
    ("reason", "implied"),
    [
        *(("event", {"changed"}), ("drift", {"drift", "verify"}), ("late report", {"verify"})),
        *(("sweep", {"overdue"}), ("retry", {"reported"}), ("report", set())),
        *(("set aside before", set()), ("grace is over", set())),
    ],
)
def test_an_old_wish_means_what_its_reason_meant(reason: str, implied: set[str]) -> None:
    wish = Wish.model_validate_json(orjson.dumps({"reason": reason, "attempt": 2}))
    flags = {name for name, value in orjson.loads(wish.encoded()).items() if value is True}
    assert (wish.reason, wish.attempt, flags) == (reason, 2, implied)
    assert wish.reason in Reason


def test_an_old_run_record_is_read() -> None:
    run = RunRecord.model_validate_json(orjson.dumps(RUN))
    assert run.outcome is Result.SUCCEEDED
    assert run.wish == Wish(reason=Reason.DRIFT, attempt=2)
    assert orjson.loads(run.encoded())["outcome"] == "succeeded"


def test_a_newer_versions_reason_is_kept() -> None:
    wish = Wish.model_validate_json(b'{"reason":"eclipse","insist":true,"lunar":true}')
    assert wish.reason == "eclipse"
    assert f"{wish.reason}" == "eclipse"
    assert wish.reason not in set(Reason)
    assert (wish.insist, wish.drift, wish.verify) == (True, False, False)
    assert orjson.loads(wish.encoded()) == {"reason": "eclipse", "insist": True}


def test_a_newer_versions_outcome_is_kept() -> None:
    run = RunRecord.model_validate_json(orjson.dumps({**RUN, "outcome": "postponed"}))
    assert run.outcome == "postponed"
    assert orjson.loads(run.encoded())["outcome"] == "postponed"


def test_an_older_version_understands_todays_wish() -> None:
    assert orjson.loads(Wish(reason=Reason.DRIFT).encoded())["reason"] == "drift"


def test_a_wish_on_top_of_another_loses_nothing() -> None:
    both = Wish(reason=Reason.EVENT, attempt=3).insisting() | Wish(reason=Reason.LATE_REPORT)
    assert (both.reason, both.attempt) == (Reason.LATE_REPORT, 3)
    assert both.also == {Reason.EVENT, Reason.CUT_OFF}
    assert Wish.decoded(both.encoded()) == both


def test_a_change_resets_the_backoff() -> None:
    failed = Wish(reason=Reason.RETRY, attempt=3)
    assert failed | Wish(reason=Reason.EVENT) == Wish(reason=Reason.EVENT)
    assert failed | Wish(reason=Reason.DRIFT) == Wish(
        reason=Reason.DRIFT, attempt=3, also=frozenset({Reason.RETRY})
    )


REQUIRED: dict[type[BaseModel], set[str]] = {
    Wish: {"reason"},
    StatusIntent: {"uid", "patch"},
    EventIntent: {"type", "reason", "note"},
    Read: {"stream", "subject", "sequence"},
    Call: {"door", "request"},
    RunRecord: {
        "pool", "key", "wish", "wish_sequence", "delivery", "started", "seconds", "process", "outcome"
    },
    ReviewRecord: {"webhook", "key", "uid", "operation", "decided", "seconds", "process", "outcome"},
    registry.Member: {"id"},
    SecretKey: {"namespace", "name"},
    registry.MachinePlace: {"namespace"},
    entries.Holder: {"cluster", "namespace", "name", "uid", "since"},
    entries.Held: {"holders"},
    entries.Waiter: {"uid", "since"},
    entries.Marker: {"id", "at"},
    edgestate.EdgeState: {"uid", "digest", "since"},
    edgestate.Testimony: set(),
}  # fmt: skip
"""Of schema 1. One more: what older processes write is not read. One less: they do not read what we write."""


@pytest.mark.parametrize("message", [*REQUIRED], ids=lambda message: message.__name__)
def test_required_fields_change_with_the_version_of_the_schema_only(message: type[BaseModel]) -> None:
    assert schema.CURRENT.version == 1, "write down here what this version requires"
    assert {name for name, field in message.model_fields.items() if field.is_required()} == REQUIRED[message]


def test_every_stored_message_is_in_the_table() -> None:
    modules = {"bus.messages", "bus.clusters.registry", entries.__name__, edgestate.__name__}
    found = {one for one in _messages(Message) if one.__module__ in modules}
    assert found - REQUIRED.keys() == set()


@cases(
    "there newer",
    ("of-before-the-first-number", {}, False),
    ("the-same", Schema(1, 1).metadata, False),
    ("newer-and-readable", Schema(3, 2).metadata, True),
    ("beside-what-the-server-says", {**Schema(2, 1).metadata, "_nats.level": "1"}, False),
)
def test_a_newer_schema_is_recognised(there: dict[str, str], newer: bool) -> None:
    assert schema.is_newer({"name": "WORK", "metadata": there}, Schema(2, 1)) is newer


def test_an_unreadable_schema_is_refused() -> None:
    with pytest.raises(Refused, match=r"stream WORK .* schema 4, .* schema 3 or newer reads; this one has 2"):
        schema.is_newer({"name": "WORK", "metadata": Schema(4, 3).metadata}, Schema(2, 1))


def _messages(base: type[Message]) -> Iterator[type[Message]]:
    for one in base.__subclasses__():
        yield one
        yield from _messages(one)


WEB = ObjectRef("runtime", "dnsrecords.extensions.gardener.cloud", "shoot--local--a", "web.one")

refs = st.builds(ObjectRef, *[st.text(max_size=30)] * 4)


@given(refs)
def test_a_key_decodes_to_its_object(ref: ObjectRef) -> None:
    assert subjects.ref(subjects.key(ref)) == ref


@given(refs)
def test_a_key_is_four_plain_tokens(ref: ObjectRef) -> None:
    tokens = subjects.key(ref).split(".")
    assert len(tokens) == 4
    for token in tokens:
        assert token
        assert token.isascii()
        assert not set(token) & set(" \t\r\n*>.")


@rule("V-1")
@given(refs, refs)
def test_two_objects_never_share_a_key(one: ObjectRef, other: ObjectRef) -> None:
    assert (subjects.key(one) == subjects.key(other)) == (one == other)


@cases(
    "name token",
    ("plain", "web", "web"),
    ("dots", "a.b", "a_b"),
    ("an-underscore-is-no-dot", "a_b", "a=5Fb"),
    ("colons", "system:node", "system:node"),
    ("a-wildcard", "*", "=2A"),
    ("the-other-wildcard", ">", "=3E"),
    ("nothing", "", "~"),
    ("the-sign-for-nothing", "~", "=7E"),
    ("beyond-ascii", "ü", "=C3=BC"),
    ("what-looks-escaped", "=41", "=3D41"),
)
def test_names_are_escaped_in_keys(name: str, token: str) -> None:
    assert subjects.key(ObjectRef("c", "k", "n", name)) == f"c.k.n.{token}"


@pytest.mark.parametrize("name", ["x" * 769, "ü" * 200, "_" * 300], ids=["plain", "beyond-ascii", "escaped"])
def test_a_name_too_long_for_a_token_is_hashed(name: str) -> None:
    key = subjects.key(ObjectRef("c", "k", "n", name))
    assert len(key) <= 768 + 6
    assert key != subjects.key(ObjectRef("c", "k", "n", name + "x"))
    # What runs make of the key leads to the same key again.
    assert subjects.key(subjects.ref(key)) == key


def test_the_longest_names_of_kubernetes_are_spelled_out() -> None:
    longest = ObjectRef("c", "k", "n" * 63, "a." * 126 + "a")
    assert subjects.ref(subjects.key(longest)) == longest


def test_the_subjects_of_an_object() -> None:
    key = "runtime.dnsrecords_extensions_gardener_cloud.shoot--local--a.web_one"
    assert subjects.key(WEB) == key
    assert subjects.seen(WEB) == f"object.{key}"
    assert subjects.wish("dnsrecord", key) == f"trigger.dnsrecord.{key}"
    assert subjects.item("dnsrecord", key) == f"work.dnsrecord.{key}"


@pytest.mark.parametrize("key", ["", "a.b.c", "a.b.c.d.e"])
def test_a_key_that_names_no_object_is_refused(key: str) -> None:
    with pytest.raises(Malformed):
        subjects.ref(key)


def test_a_subject_of_another_stream_is_refused() -> None:
    with pytest.raises(Malformed):
        subjects.without("object", "objects.a.b.c.d")
