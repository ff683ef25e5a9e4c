"""Queries by request and reply: the processes that know the answer subscribe."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import nats.errors
from nats.aio.msg import Msg

from bus.leases import guard
from bus.transport.connection import TIMEOUT, Bus, translated
from windowbox.errors import Unreachable, WindowboxError

EDGE = "windowbox.edge"
"""The state and traffic of an edge: its owner answers."""


def edge(host: str) -> str:
    """Where the edge of a host answers, if there are several."""
    return f"{EDGE}.{host}" if host else EDGE


TWINS = "windowbox.twins"
"""Whether another DNSRecord has a name: the worker that follows all DNSRecords answers."""

_FAILED = "Wb-Failed"


@contextlib.asynccontextmanager
async def answering(
    bus: Bus, subject: str, answer: Callable[[bytes], Awaitable[bytes]]
) -> AsyncIterator[None]:
    """Answer queries of `subject` within the block. An error of `answer` becomes the response."""

    async def take(question: Msg) -> None:
        headers = None
        try:
            answer_data = await answer(question.data)
        except WindowboxError as error:
            answer_data, headers = b"", {_FAILED: str(error)}
        except Exception as error:  # a bug of `answer`
            guard.note(subject, error, "the query fails")
            answer_data, headers = b"", {_FAILED: type(error).__name__}
        with translated("answer"):
            await bus.client.publish(question.reply, answer_data, headers=headers)

    with translated(f"subscribe to {subject}"):
        subscription = await bus.client.subscribe(subject, cb=take)
        await bus.client.flush()  # from here on, the server knows the subscription
    try:
        task = asyncio.current_task()
        if task and task.cancelling():
            # nats-py's flush waits by `wait_for`, which swallows a cancellation if the answer comes with it.
            raise asyncio.CancelledError
        yield
    finally:
        with contextlib.suppress(nats.errors.Error, OSError):  # the connection may be lost
            await subscription.unsubscribe()


async def ask(bus: Bus, subject: str, question: bytes = b"", timeout: float = TIMEOUT) -> bytes | None:
    """The first response; None without a subscriber. Unreachable if none comes within `timeout`."""
    with translated(f"ask {subject}"):
        try:
            found = await bus.requests.ask(subject, question, timeout)
        except nats.errors.NoRespondersError:
            return None
    if failed := (found.headers or {}).get(_FAILED):
        raise Unreachable(failed)
    answered: bytes = found.data
    return answered
