"""How many messages are asked for, and with which rank."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from nats.aio.client import Client

from bus.leases.leases import _Share
from bus.leases.liveness import Life
from bus.transport import answers
from bus.transport.directclient import parsed
from bus.transport.finishing import to_end
from bus.transport.pull import Credit, refused
from tests.support.running import running, soon
from windowbox.errors import Unreachable


def asked(credit: Credit) -> tuple[int, int]:
    early, late = credit.wanted()
    credit.ask(early, late)
    return early, late


def taken(credit: Credit, count: int) -> None:
    credit.receive(count, 0)


@pytest.mark.parametrize(
    ("credit", "requests"),
    [(Credit(64), (64, 0)), (Credit(64, 32), (32, 32)), (Credit(16, 32), (16, 0))],
    ids=["without-ranks", "ranked", "little-room"],
)
def test_ranks_request_only_the_first_messages_early(credit: Credit, requests: tuple[int, int]) -> None:
    assert asked(credit) == requests


def test_more_is_requested_after_a_good_part_is_used() -> None:
    credit = Credit(64, 32)
    asked(credit)
    taken(credit, 7)
    credit.done(7)
    assert asked(credit) == (0, 0)
    taken(credit, 1)
    credit.done(1)
    assert asked(credit) == (8, 0)


def test_a_puller_with_enough_in_hand_is_not_preferred() -> None:
    credit = Credit(64, 32)
    asked(credit)
    taken(credit, 64)
    assert asked(credit) == (0, 0)
    credit.done(1)
    assert asked(credit) == (0, 1)
    credit.done(39)
    assert asked(credit) == (8, 31)


def test_messages_in_flight_and_requested_stay_within_the_limit() -> None:
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


def test_undelivered_credit_is_requested_again() -> None:
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
        ("early-64-1", {"Nats-Pending-Messages": "12"}, (False, 12)),
        ("late-32-2", {"Nats-Pending-Messages": "32"}, (True, 32)),
        ("early-16-30", {}, (False, 16)),
    ],
    ids=["expired in part", "expired", "never accepted"],
)
def test_a_refusal_names_its_request_and_count(
    inbox: str, headers: dict[str, str], expected: tuple[bool, int]
) -> None:
    assert refused(f"_INBOX.a.{inbox}", headers) == expected


def test_a_refused_request_leaves_others_of_its_kind() -> None:
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


def test_no_credit_is_left_when_a_late_request_delivers_first() -> None:
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


def test_credit_equals_what_the_server_still_owes() -> None:
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


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b'"code":503,"err_code":10008,"description":"no leader"', Unreachable),
        (b'"code":400,"err_code":10005,"description":"no suitable peers for placement"', Unreachable),
        (b'"code":400,"err_code":10052,"description":"stream subjects overlap"', answers.ApiError),
    ],
    ids=["no-leader", "a-server-still-starts", "refused"],
)
def test_only_an_incomplete_cluster_counts_as_unreachable(answer: bytes, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"STREAM\.CREATE\.WORK"):
        answers.api("STREAM.CREATE.WORK", b'{"error":{' + answer + b"}}")


@pytest.mark.parametrize(
    "block",
    [
        b"NATS/1.0\r\nNats-Sequence: 7\r\nNats-Subject: a.b\r\n\r\n",
        b"NATS/1.0\r\nempty:\r\nspaces:   a: b  \r\n\r\n",
        b"NATS/1.0 503\r\n\r\n",
        b"NATS/1.0 404 Message Not Found\r\n\r\n",
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1016\r\nNats-Last-Stream: 1024\r\n\r\n",
        "NATS/1.0\r\nname: Zürich\r\n\r\n".encode(),
    ],
)
async def test_headers_are_parsed_as_by_nats_py(block: bytes) -> None:
    assert parsed(block) == await Client()._process_headers(block)


def test_a_status_and_its_description_are_read() -> None:
    expected = {"Status": "409", "Description": "Consumer Deleted"}
    assert parsed(b"NATS/1.0 409 Consumer Deleted\r\n\r\n") == expected


@pytest.mark.parametrize("error", [None, Unreachable("away")], ids=["answered", "failed"])
async def test_two_cancellations_wait_for_the_end(error: Unreachable | None) -> None:
    answered, ended = asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        await answered.wait()
        ended.set()
        if error:
            raise error

    asking = asyncio.create_task(to_end(ask()))
    await asyncio.sleep(0)  # it begins
    for _ in range(2):
        asking.cancel()
        await asyncio.wait([asking], timeout=0.01)
        assert not asking.done()
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert ended.is_set()


async def test_an_answer_and_a_failure_are_handed_on() -> None:
    async def answer() -> str:
        return "answer"

    assert await to_end(answer()) == "answer"
    failed = asyncio.get_running_loop().create_future()
    failed.set_exception(Unreachable("away"))
    with pytest.raises(Unreachable):
        await to_end(failed)


@pytest.mark.parametrize("steps", range(6))
async def test_no_act_begins_after_its_lease_was_lost(steps: int) -> None:
    """The lease is lost so many steps of the event loop after it was gained."""
    life, share, began = Life("work"), _Share(), list[str]()
    life.renewed = time.monotonic()

    async def act() -> None:
        began.append("began")
        await asyncio.Event().wait()

    async def keep() -> None:
        await asyncio.Event().wait()

    async def do() -> None:
        await share.do("thing", act)

    async with running(keep(), do()) as (share.keeping, _):
        await _steps(3)
        share.gain(life)
        await _steps(steps)
        await soon(share.lost())
        before = list(began)
        await _steps(10)
        assert began == before


async def _steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
