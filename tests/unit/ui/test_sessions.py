"""Sessions and links."""

from __future__ import annotations

import pytest

from ui import limits, sessions
from ui.limits import Budget, Crowded, Limits
from ui.sessions import Links, Sessions

NOW = 1_000_000.0


def test_a_link_is_good_once() -> None:
    links, link = Links("key"), sessions.link("key", NOW)
    assert links.take(link, NOW + 3599)
    assert not links.take(link, NOW + 3599)


@pytest.mark.parametrize(
    "change",
    [
        lambda link: link + "0",
        lambda link: "9" + link,
        lambda link: link.replace(".", ".a", 1),
        lambda _: "",
        lambda _: "..",
        lambda _: "1e9.a.b",
        lambda _: "9" * 5000,
    ],
)
def test_a_changed_link_is_refused(change: object) -> None:
    assert callable(change)
    assert not Links("key").take(change(sessions.link("key", NOW)), NOW)


def test_a_link_ends_and_has_its_own_key() -> None:
    link = sessions.link("key", NOW)
    assert not Links("key").take(link, NOW + 3601)
    assert not Links("another").take(link, NOW)
    assert not Links("key").take(sessions.link("key", NOW + 7200), NOW)


async def test_a_session_is_found_by_its_cookie_until_it_ends() -> None:
    found = Sessions()
    cookie, session = found.begin("me")
    assert await found.find(cookie) is session
    assert await found.find(cookie + "x") is None
    found.end(cookie)
    assert await found.find(cookie) is None


async def test_who_may_not_look_any_more_is_signed_out() -> None:
    found, may = Sessions(), [True, False]

    async def still() -> bool:
        return may.pop(0)

    cookie, session = found.begin("me", still)
    assert await found.find(cookie) is session
    session.asked -= 61
    assert await found.find(cookie) is session
    session.asked -= 61
    assert await found.find(cookie) is None


async def test_there_are_at_most_a_thousand_sessions() -> None:
    found = Sessions()
    first, _ = found.begin("first")
    for _ in range(1000):
        found.begin("others")
    assert await found.find(first) is None


def test_a_budget_is_of_one_client() -> None:
    budget = Budget(rate=0.001, burst=2)
    budget.take("a")
    budget.take("a")
    with pytest.raises(Crowded):
        budget.take("a")
    budget.take("b")


def test_streams_are_bounded_by_client_and_are_given_back() -> None:
    found = Limits()
    streams = [found.stream("a") for _ in range(limits.MOST_STREAMS_OF_ONE)]
    for one in streams:
        one.__enter__()
    with pytest.raises(Crowded), found.stream("a"):
        pass
    with found.stream("b"):
        streams[0].__exit__(None, None, None)
        with found.stream("a"):
            pass
