"""Errors of JetStream's API, by what to do about them."""

from __future__ import annotations

import pytest

from bus.transport import answers
from windowbox.errors import Unreachable


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            b'{"error":{"code":503,"err_code":10008,"description":"no leader"}}',
            id="no-leader",
        ),
        pytest.param(
            b'{"error":{"code":400,"err_code":10005,'
            b'"description":"no suitable peers for placement, peer offline"}}',
            id="a-server-still-starts",
        ),
    ],
)
def test_a_cluster_that_is_not_complete_is_asked_again(answer: bytes) -> None:
    with pytest.raises(Unreachable):
        answers.api("STREAM.CREATE.WORK", answer)


def test_what_the_server_refuses_is_not_asked_again() -> None:
    answer = b'{"error":{"code":400,"err_code":10052,"description":"stream subjects overlap"}}'
    with pytest.raises(answers.ApiError, match=r"STREAM\.CREATE\.WORK: stream subjects overlap"):
        answers.api("STREAM.CREATE.WORK", answer)
