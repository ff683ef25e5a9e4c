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
"""A new stream needs more servers than are online. Its status is 400, but a server that starts changes it."""
_NO_MESSAGE = 10037
_NO_SUCH_SEQUENCE = 10043
_DELETE_FAILED = 10057
_WRONG_LAST_SEQUENCE = 10071
_STORE_FAILED = 10077
_ANOTHER_IN_FLIGHT = 10164
"""Servers in a cluster say this where another write to the subject is not through yet: a lost race, too."""

# Codes that several failures share are told apart by what Go's errors say.
_SUBJECT_FULL = "maximum messages per subject exceeded"
_STREAM_FULL = "maximum bytes exceeded"
_NOT_FOUND = ("no message found", "stream store EOF")
"""The latter where the sequence is beyond the last."""

Headers = Mapping[str, str]


class ApiError(WindowboxError):
    """JetStream said no; the code tells why."""

    def __init__(self, what: str, error: Mapping[str, Any]) -> None:
        self.description = str(error.get("description", error))
        super().__init__(f"{what}: {self.description}")
        self.code = int(error.get("err_code", 0))

    @property
    def gone(self) -> bool:
        """Whether it says that there is no such message."""
        if self.code == _DELETE_FAILED:
            return self.description in _NOT_FOUND
        return self.code in (_NO_MESSAGE, _NO_SUCH_SEQUENCE)


class WrongSequence(Conflict):
    """Somebody else has written to this subject since we looked."""


class Occupied(Conflict):
    """The subject holds all that it may hold: for a queue this means that the item waits already."""


class Full(TransientError):
    """The stream holds as many bytes as it may."""


class Stored(NamedTuple):
    """A message of a stream."""

    subject: str
    sequence: int
    time: str
    headers: Headers
    data: bytes


def api(what: str, answer: bytes) -> dict[str, Any]:
    """An answer of JetStream's API; Unreachable while there is nobody who could act on it."""
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
"""The headers of what is read in place of a forged message."""
ORIGIN = "Nats-Stream"
"""A header of all answers to direct gets: the stream that they come from."""


def is_forged(subject: str, headers: Headers) -> bool:
    """Whether a stored message was not published, but is an answer to a direct get.

    Whoever asks names the subject of the answer, which may be one that only another role may publish to.
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
    """A message as the leader of its stream tells it."""
    headers = _headers(base64.b64decode(message.get("hdrs", "")))
    data = base64.b64decode(message.get("data", ""))
    found = Stored(message["subject"], int(message["seq"]), message["time"], headers, data)
    return _nothing(found) if is_forged(found.subject, headers) else found


def _nothing(forged: Stored) -> Stored:
    """What counts as nothing, but tells the sequence: the next who writes to the subject replaces it."""
    return forged._replace(headers=NOTHING, data=b"")


def _headers(block: bytes) -> Headers:
    lines = block.decode().split("\r\n")[1:]
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
