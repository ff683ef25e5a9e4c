"""Exceptions of every kind that may arrive in a task."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import nats.errors
import nats.js.errors
import pydantic

from bus.transport.connection import ApiError
from windowbox.errors import Conflict, Malformed, Unreachable


def any_kind() -> list[BaseException]:
    """One of each kind, bugs and expected ones. The last was not meant for the task that gets it."""
    return [*bugs(), *expected(), asyncio.CancelledError("of a future that the task awaits")]


def bugs() -> list[Exception]:
    return [
        ArithmeticError("a bug"),
        AssertionError("a bug"),
        AttributeError("a bug"),
        BufferError("a bug"),
        EOFError("a bug"),
        IndexError("a bug"),
        KeyError("a bug"),
        MemoryError("a bug"),
        NotImplementedError("a bug"),
        OSError(24, "Too many open files"),
        RecursionError("a bug"),
        RuntimeError("a bug"),
        StopAsyncIteration("a bug"),
        TimeoutError("a bug"),
        TypeError("a bug"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a bug"),
        ValueError("a bug"),
        ssl.SSLError("a bug"),
        aiohttp.ClientError("a bug"),
        asyncio.IncompleteReadError(b"", 1),
        asyncio.InvalidStateError("a bug"),
        asyncio.QueueFull(),
        nats.errors.ConnectionClosedError(),
        nats.errors.TimeoutError(),
        nats.js.errors.APIError(code=500, description="a bug"),
        _invalid(),
        ExceptionGroup("of tasks", [ValueError("a bug"), Unreachable("silent")]),
    ]


def expected() -> list[Exception]:
    return [
        ApiError("PUBLISH", {"err_code": 1, "description": "refused"}),
        Conflict("changed"),
        Malformed("invalid"),
        Unreachable("silent"),
    ]


def _invalid() -> pydantic.ValidationError:
    class Model(pydantic.BaseModel):
        number: int

    try:
        Model.model_validate({"number": "x"})
    except pydantic.ValidationError as error:
        return error
    raise AssertionError
