"""Requests at a fixed rate."""

from __future__ import annotations

from tools.bench import requests
from windowbox.errors import Refused, Unreachable


async def test_a_request_that_fails_ends_no_benchmark() -> None:
    async def act(number: int) -> None:
        if number:
            raise (Unreachable if number == 1 else Refused)(f"{number}")

    asked = await requests.at_rate(act, 1000, 3)
    assert (len(asked.seconds), sorted(asked.failed)) == (1, ["1", "2"])
