"""How many messages are asked for, and with which rank."""

from __future__ import annotations

from bus.credit import Credit


def asked(credit: Credit) -> tuple[int, int]:
    early, late = credit.wanted()
    credit.ask(early, late)
    return early, late


def taken(credit: Credit, count: int) -> None:
    credit.receive(count, 0)


def test_without_ranks_everything_is_asked_for_at_once() -> None:
    assert asked(Credit(64)) == (64, 0)


def test_with_ranks_what_goes_beyond_the_first_is_asked_for_late() -> None:
    assert asked(Credit(64, 32)) == (32, 32)


def test_whoever_has_little_room_asks_for_nothing_late() -> None:
    assert asked(Credit(16, 32)) == (16, 0)


def test_more_is_asked_for_when_a_good_part_is_used_up() -> None:
    credit = Credit(64, 32)
    asked(credit)
    taken(credit, 7)
    credit.done(7)
    assert asked(credit) == (0, 0)
    taken(credit, 1)
    credit.done(1)
    assert asked(credit) == (8, 0)


def test_whoever_has_enough_in_hand_is_no_longer_preferred() -> None:
    credit = Credit(64, 32)
    asked(credit)
    taken(credit, 64)
    assert asked(credit) == (0, 0)
    credit.done(1)
    assert asked(credit) == (0, 1)
    credit.done(39)
    assert asked(credit) == (8, 31)


def test_never_more_than_the_limit_are_in_hand_and_asked_for() -> None:
    credit, in_hand = Credit(64, 32), 0
    for turn in range(1000):
        asked(credit)
        assert credit.asked + in_hand <= 64
        assert credit.asked or in_hand
        count = min(credit.asked, (turn * 7) % 23)
        taken(credit, count)
        in_hand += count
        ended = min(in_hand, (turn * 5) % 19)
        credit.done(ended)
        in_hand -= ended


def test_what_a_request_no_longer_brings_is_asked_for_anew() -> None:
    credit = Credit(64, 32)
    asked(credit)
    taken(credit, 20)
    credit.refuse(late=False, count=12)
    credit.refuse(late=True, count=None)
    credit.done(20)
    assert asked(credit) == (32, 32)


def test_forged_messages_take_no_room() -> None:
    credit = Credit(4)
    asked(credit)
    credit.receive(1, 3)
    assert asked(credit) == (3, 0)
