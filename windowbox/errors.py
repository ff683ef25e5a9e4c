"""Errors, sorted by what to do next."""

from collections.abc import Mapping
from typing import Any


class WindowboxError(Exception):
    """An expected failure of a distributed system. Every other exception is a bug."""

    codes: tuple[str, ...] = ()
    """Gardener's error codes, for `lastError.codes`."""
    headline: str = ""
    """The first words of its report; empty for the default of the object's kind."""
    status: Mapping[str, Any] = {}
    """Further fields to report: a merge patch of the object's status."""

    def __init__(self, message: str, *, codes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        if codes:
            self.codes = codes


class WatchExpired(WindowboxError):
    """The resource version of a watch has expired: list again."""


class Superseded(WindowboxError):
    """Another process has taken over this run: stop, and report nothing."""


class _Later(WindowboxError):
    def __init__(
        self, message: str, *, retry_after: float | None = None, codes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, codes=codes)
        self.retry_after = retry_after
        """Seconds until the next attempt."""


class TransientError(_Later):
    """Retry later, without `retry_after` after the usual growing delay; no person needs to act."""


class Waiting(_Later):
    """Everything is requested and others work on it: a watch event triggers the next run.

    `retry_after` is for changes that no event reports.
    """


class Conflict(TransientError):
    """A concurrent write came first: read again, decide again."""


class Unreachable(TransientError):
    """The server cannot be reached, or cannot serve now."""


class TooManyRequests(Unreachable):
    """The server refuses for now: too many requests, or a PodDisruptionBudget forbids an eviction."""


class LeaseLost(TransientError):
    """Another program may act in our place by now: stop, and decide again."""


class NotListed(TransientError):
    """The bus does not know all objects of a cluster yet: no final decision is possible."""


class NotJoined(TransientError):
    """The API server of a Shoot has not joined yet."""


class PermanentError(WindowboxError):
    """A retry cannot succeed until a person changes something."""


class Missing(PermanentError):
    """The object, program or file does not exist."""


class Forbidden(PermanentError):
    """We lack the right. A starting API server answers so, too, until it has loaded its RBAC rules."""

    codes = ("ERR_INFRA_UNAUTHORIZED",)


class Malformed(PermanentError):
    """The input is not valid."""

    codes = ("ERR_CONFIGURATION_PROBLEM",)


class TooLarge(PermanentError):
    """The input exceeds a size limit."""


class Refused(PermanentError):
    """The request is valid, but rejected."""


def codes(error: BaseException | None) -> list[str]:
    """The codes nearest to `error` in its chain of causes; those of an exception group are concatenated."""
    if error is None:
        return []
    if isinstance(error, BaseExceptionGroup):
        return [code for member in error.exceptions for code in codes(member)]
    if isinstance(error, WindowboxError) and error.codes:
        return list(error.codes)
    return codes(error.__cause__)
