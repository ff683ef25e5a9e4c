from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus import subjects
from tests.support.rules import rule
from windowbox.errors import Malformed
from windowbox.models.refs import ObjectRef

WEB = ObjectRef("runtime", "dnsrecords.extensions.gardener.cloud", "shoot--local--a", "web.one")

refs = st.builds(ObjectRef, *[st.text(max_size=30)] * 4)


@given(refs)
def test_a_key_tells_which_object_it_names(ref: ObjectRef) -> None:
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


@pytest.mark.parametrize(
    ("name", "token"),
    [
        pytest.param("web", "web", id="plain"),
        pytest.param("a.b", "a_b", id="dots"),
        pytest.param("a_b", "a=5Fb", id="an-underscore-is-no-dot"),
        pytest.param("system:node", "system:node", id="colons"),
        pytest.param("*", "=2A", id="a-wildcard"),
        pytest.param(">", "=3E", id="the-other-wildcard"),
        pytest.param("", "~", id="nothing"),
        pytest.param("~", "=7E", id="the-sign-for-nothing"),
        pytest.param("ü", "=C3=BC", id="beyond-ascii"),
        pytest.param("=41", "=3D41", id="what-looks-escaped"),
    ],
)
def test_how_a_name_is_spelled(name: str, token: str) -> None:
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
def test_what_names_no_object_is_refused(key: str) -> None:
    with pytest.raises(Malformed):
        subjects.ref(key)


def test_a_subject_of_another_stream_is_refused() -> None:
    with pytest.raises(Malformed):
        subjects.without("object", "objects.a.b.c.d")
