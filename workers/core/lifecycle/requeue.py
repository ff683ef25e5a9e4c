"""The requeue after a run that did not succeed: when, and with which wish."""

from __future__ import annotations

from bus.messages import Reason, Result, Wish
from bus.workqueue.pool import Outcome, RequeueAfter
from windowbox.errors import Forbidden, TransientError, WindowboxError
from workers.core.lifecycle import statuses

_FIRST_RETRY_OF_MALFORMED = 30.0
_LONGEST = 1000.0


def retry(wish: Wish, error: WindowboxError, jitter: float) -> RequeueAfter:
    return RequeueAfter(Wish(reason=Reason.RETRY, attempt=wish.attempt + 1), delay(wish, error, jitter))


def insist(wish: Wish, error: WindowboxError, jitter: float) -> RequeueAfter:
    """Retry even if the object looks finished: the run may have been cut off."""
    again = Wish(reason=Reason.RETRY, attempt=wish.attempt + 1, insist=True)
    return RequeueAfter(again, delay(wish, error, jitter))


def same_wish(wish: Wish, error: WindowboxError, jitter: float) -> RequeueAfter:
    """Retry with the same wish: a check for drift does not become a client's request."""
    again = wish.model_copy(update={"attempt": wish.attempt + 1, "insist": False})
    return RequeueAfter(again, delay(wish, error, jitter))


def as_request(wish: Wish) -> Outcome:
    """Requeue at once as a client's request: such a run is repeated if it is cut off."""
    return Outcome(
        Result.WAITING, RequeueAfter(wish | Wish(reason=Reason.EVENT), 0), "a client asks for a run"
    )


def of_orphan() -> RequeueAfter:
    """Requeue at once: the object was deleted before its finalizer was there."""
    why = "it was deleted during the run: what was made for it is removed"
    return RequeueAfter(Wish(reason=Reason.RETRY, insist=True), 0, why)


def delay(wish: Wish, error: WindowboxError, jitter: float) -> float:
    """Seconds of backoff."""
    backoff = statuses.retry_delay(wish.attempt, jitter)
    if isinstance(error, TransientError):
        return error.retry_after if error.retry_after is not None else backoff
    if isinstance(error, Forbidden):
        return backoff  # a starting API server may answer so for a moment
    # A person has to correct the object: retry later.
    return min(_LONGEST, max(backoff, _FIRST_RETRY_OF_MALFORMED * 2.0 ** min(wish.attempt, 6)))
