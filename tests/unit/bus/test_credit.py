"""How many messages are asked for, and with which rank."""

from __future__ import annotations

import random

import pytest

from bus.transport.pull import Credit, refused


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
    credit.refuse(late=True, count=32)
    credit.done(20)
    assert asked(credit) == (32, 32)


@pytest.mark.parametrize(
    ("inbox", "headers", "expected"),
    [
        pytest.param(
            "_INBOX.a.early-64-1", {"Nats-Pending-Messages": "12"}, (False, 12), id="expired in part"
        ),
        pytest.param("_INBOX.a.late-32-2", {"Nats-Pending-Messages": "32"}, (True, 32), id="expired"),
        pytest.param("_INBOX.a.early-16-30", {}, (False, 16), id="never accepted"),
    ],
)
def test_what_a_refusal_ends(inbox: str, headers: dict[str, str], expected: tuple[bool, int]) -> None:
    assert refused(inbox, headers) == expected


def test_a_request_that_is_refused_leaves_others_of_its_kind() -> None:
    credit = Credit(64)
    asked(credit)
    taken(credit, 40)
    credit.done(40)
    assert asked(credit) == (40, 0)
    credit.refuse(*refused("_INBOX.a.early-40-2", {}))  # there are too many requests
    assert credit.asked == 24
    assert asked(credit) == (40, 0)


def test_forged_messages_take_no_room() -> None:
    credit = Credit(4)
    asked(credit)
    credit.receive(1, 3)
    assert asked(credit) == (3, 0)


def test_what_a_late_request_brings_before_an_early_one_has_arrived_leaves_nothing_behind() -> None:
    credit = Credit(256, 64)
    assert asked(credit) == (64, 192)
    taken(credit, 100)  # the server has none of the early request left, and 156 of the late one
    credit.done(60)
    early, late = asked(credit)
    assert (early, late) == (24, 0)
    taken(credit, 10)  # by the late request: the early one is still on its way
    credit.refuse(late=False, count=24)
    credit.refuse(late=True, count=146)
    assert credit.asked == 0


class Server:
    """Serves early requests first, as far as they have arrived."""

    def __init__(self, credit: Credit, dice: random.Random) -> None:
        self._credit, self._dice = credit, dice
        self._on_the_way: list[tuple[bool, int]] = []
        self._waiting: list[tuple[bool, int]] = []

    def ask(self) -> None:
        early, late = asked(self._credit)
        self._on_the_way += [(is_late, count) for is_late, count in ((False, early), (True, late)) if count]

    def arrive(self) -> None:
        if self._on_the_way:
            self._waiting.append(self._on_the_way.pop(0))

    def deliver(self, count: int) -> int:
        """Send up to so many messages; how many were sent."""
        sent = 0
        self._waiting.sort(key=lambda request: request[0])
        while self._waiting and sent < count:
            is_late, left = self._waiting.pop(0)
            used = min(left, count - sent)
            sent += used
            if left > used:
                self._waiting.insert(0, (is_late, left - used))
        taken(self._credit, sent)
        return sent

    def expire(self) -> None:
        """One request ends, any of those that wait."""
        if self._waiting:
            is_late, left = self._waiting.pop(self._dice.randrange(len(self._waiting)))
            self._credit.refuse(is_late, left)

    @property
    def owed(self) -> int:
        return sum(count for _, count in self._on_the_way + self._waiting)


def test_as_many_are_asked_for_as_the_server_still_has_to_send() -> None:
    dice = random.Random(32)
    for limit in (64, 65, 256):
        credit, in_hand = Credit(limit, 64), 0
        server = Server(credit, dice)
        for _ in range(5000):
            match dice.randrange(5):
                case 0:
                    server.ask()
                case 1:
                    server.arrive()
                case 2:
                    in_hand += server.deliver(dice.randrange(120))
                case 3:
                    ended = dice.randint(0, in_hand)
                    credit.done(ended)
                    in_hand -= ended
                case _:
                    server.expire()
            assert (credit.asked, in_hand <= limit) == (server.owed, True)
