"""Responses of the JetStream API: errors by their codes, and stored messages."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
from nats.aio.msg import Msg

from windowbox.errors import Conflict, TransientError, Unreachable, WindowboxError

logger = logging.getLogger(__name__)

_UNAVAILABLE = 503
_NO_PEERS = 10005
"""A new stream needs more servers than are online. The status is 400, but another server may start."""
_NO_MESSAGE = 10037
_NO_SUCH_SEQUENCE = 10043
_DELETE_FAILED = 10057
_WRONG_LAST_SEQUENCE = 10071
_STORE_FAILED = 10077
_ANOTHER_IN_FLIGHT = 10164
"""In a cluster: another write to the subject is still in progress. A lost race, too."""

# Several failures share a code, and differ in the text of Go's errors.
_SUBJECT_FULL = "maximum messages per subject exceeded"
_STREAM_FULL = "maximum bytes exceeded"
_NOT_FOUND = ("no message found", "stream store EOF")
"""The latter where the sequence is beyond the last."""

Headers = Mapping[str, str]


class ApiError(WindowboxError):
    """JetStream refused the request; `code` says why."""

    def __init__(self, what: str, error: Mapping[str, Any]) -> None:
        self.description = str(error.get("description", error))
        super().__init__(f"{what}: {self.description}")
        self.code = int(error.get("err_code", 0))

    @property
    def gone(self) -> bool:
        """Whether there is no such message."""
        if self.code == _DELETE_FAILED:
            return self.description in _NOT_FOUND
        return self.code in (_NO_MESSAGE, _NO_SUCH_SEQUENCE)


class WrongSequence(Conflict):
    """Another process has written to this subject since it was read."""


class Occupied(Conflict):
    """The subject has reached its limit of messages: in a queue, the item is there already."""


class Full(TransientError):
    """The stream has reached its limit of bytes."""


class Stored(NamedTuple):
    """A message of a stream."""

    subject: str
    sequence: int
    time: str
    headers: Headers
    data: bytes


def api(what: str, answer: bytes) -> dict[str, Any]:
    """A response of JetStream's API. Raises Unreachable while no server can serve the request."""
    decoded: dict[str, Any] = orjson.loads(answer)
    if error := decoded.get("error"):
        if error.get("code") == _UNAVAILABLE or error.get("err_code") == _NO_PEERS:
            raise Unreachable(f"{what}: {error.get('description')}")
        raise ApiError(what, error)
    return decoded


def sequence(what: str, answer: bytes) -> int | None:
    """The sequence of a message that was stored; None if the stream holds it already."""
    ack = orjson.loads(answer)
    if error := ack.get("error"):
        text = f"{what}: {error.get('description')}"
        match error.get("err_code"):
            case code if code in (_WRONG_LAST_SEQUENCE, _ANOTHER_IN_FLIGHT):
                raise WrongSequence(text)
            case code if code == _STORE_FAILED and error.get("description") == _SUBJECT_FULL:
                raise Occupied(text)
            case code if code == _STORE_FAILED and error.get("description") == _STREAM_FULL:
                raise Full(text)
            case _:
                raise TransientError(text)
    return None if ack.get("duplicate") else int(ack["seq"])


FORGED = "Windowbox-Forged"
"""A header that a connection adds to answers with two origins."""
NOTHING: Headers = {"KV-Operation": "DEL"}
"""The headers of the message that is read in place of a forged one."""
ORIGIN = "Nats-Stream"
"""A header of all responses to direct gets: the stream that they come from."""


def is_forged(subject: str, headers: Headers) -> bool:
    """Whether a stored message was not published, but is a response to a direct get.

    The requester names the subject of the response, which may be one that only another role may publish to.
    """
    if ORIGIN not in headers:
        return False
    logger.error(
        "%s: ignored, because a role had it published as an answer; find out which, and why", subject
    )
    return True


def direct(answer: Msg) -> Stored | None:
    """The message that a direct get has found."""
    headers = answer.headers or {}
    if "Nats-Sequence" not in headers:
        return None
    found = Stored(
        headers["Nats-Subject"],
        int(headers["Nats-Sequence"]),
        headers["Nats-Time-Stamp"],
        headers,
        answer.data,
    )
    return _nothing(found) if FORGED in headers and is_forged(found.subject, headers) else found


def from_leader(message: Mapping[str, Any]) -> Stored:
    """A message in a response of its stream's leader."""
    lines = base64.b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:]
    headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    data = base64.b64decode(message.get("data", ""))
    found = Stored(message["subject"], int(message["seq"]), message["time"], headers, data)
    return _nothing(found) if is_forged(found.subject, headers) else found


def _nothing(forged: Stored) -> Stored:
    """A deletion with the sequence of the forged message: the next writer of the subject replaces it."""
    return forged._replace(headers=NOTHING, data=b"")
