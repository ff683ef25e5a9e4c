"""Errors, sorted by what to do next."""


class WindowboxError(Exception):
    """Something that can go wrong in a world of many machines. Anything else that is raised is a bug."""

    codes: tuple[str, ...] = ()
    """Gardener's error codes, for `lastError.codes`."""
    headline: str = ""
    """How its report begins, where that is not how the reports of its kind of object usually begin."""

    def __init__(self, message: str, *, codes: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        if codes:
            self.codes = codes


class WatchExpired(WindowboxError):
    """The place where we stopped listening is forgotten: list again."""


class Superseded(WindowboxError):
    """Somebody else has taken over what we were doing: stop, and report nothing."""


class TransientError(WindowboxError):
    """Try again later; nobody needs to wake up."""

    def __init__(
        self, message: str, *, retry_after: float | None = None, codes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, codes=codes)
        self.retry_after = retry_after
        """Seconds until the next attempt, or None for the usual growing delay."""


class Waiting(WindowboxError):
    """Everything has been asked for, and others are at it: an event tells when it is there."""


class Conflict(TransientError):
    """Somebody wrote first: read again, decide again."""


class Unreachable(TransientError):
    """The other side is away."""


class NotListed(TransientError):
    """The bus does not know all objects of a cluster yet, so nothing that is final can be decided."""


class PermanentError(WindowboxError):
    """Trying again cannot help until a person changes something."""


class Missing(PermanentError):
    """It is not there."""


class Forbidden(PermanentError):
    """We are not allowed to. An API server that has just started says so, too, until it knows its rules."""

    codes = ("ERR_INFRA_UNAUTHORIZED",)


class Malformed(PermanentError):
    """We cannot understand what we were given."""

    codes = ("ERR_CONFIGURATION_PROBLEM",)


class TooLarge(PermanentError):
    """There is more of it than is read."""


class Refused(PermanentError):
    """Understood, and turned down."""


def codes(error: BaseException | None) -> list[str]:
    """The codes nearest to `error` in its chain of causes; of several errors, one's after the other's."""
    if error is None:
        return []
    if isinstance(error, BaseExceptionGroup):
        return [code for member in error.exceptions for code in codes(member)]
    if isinstance(error, WindowboxError) and error.codes:
        return list(error.codes)
    return codes(error.__cause__)
