"""The guard of long-lived tasks: no exception ends them, nor what they do for other clusters and objects.

An exception that ends a leased task would end its process, and then each process that takes the lease over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from bus.outcomes import backoff
from bus.transport.finishing import check_cancelled
from windowbox.errors import WindowboxError
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST, _LONGEST = 0.2, 30.0
"""Seconds until the task runs again: after the first exception, and after many in a row."""
_CALM = 60.0
"""Seconds after which an exception counts as the first one again."""


class Lost(WindowboxError):
    """This process no longer holds the lease."""


async def kept(task: str, act: Callable[[], Awaitable[T]]) -> T:
    """Run `act` to its end; after an exception again, with backoff. A cancellation and Lost pass."""
    failures = 0
    while True:
        began = time.monotonic()
        try:
            return await act()
        except asyncio.CancelledError as error:
            check_cancelled(error)
            caught: BaseException = error  # nobody cancelled this task: a future that it awaits was cancelled
        except Exception as error:  # of the bus and its clusters, or a bug that one object triggers
            if _is_lost(error):
                raise Lost(str(error)) from error
            caught = error
        failures = failures + 1 if time.monotonic() - began < _CALM else 1
        pause = backoff(failures, first=FIRST, longest=_LONGEST)
        note(task, caught, f"again in {pause:.1f} s")
        await asyncio.sleep(pause)


@contextlib.contextmanager
def isolated(task: str, culprit: object) -> Iterator[None]:
    """Do the block for one cluster or object: a bug that it triggers is logged, and ends no other.

    Expected errors pass.
    """
    try:
        yield
    except WindowboxError:
        raise
    except Exception as error:  # a bug that the culprit triggers
        if _is_lost(error):
            raise
        note(task, error, f"{culprit} is left out")


def note(task: str, error: BaseException, consequence: str) -> None:
    """Log and count an exception; end this task if it is being cancelled.

    A group of tasks raises the error of one of them instead of a cancellation that comes at the same time.
    """
    check_cancelled(error)
    metrics.guarded.labels(task).inc()
    if isinstance(error, WindowboxError):
        logger.warning("%s: %s; %s", task, error, consequence)
    else:
        logger.error("%s: %s: %s; %s", task, type(error).__name__, error, consequence, exc_info=error)


def _is_lost(error: Exception) -> bool:
    """Whether the lease was lost, perhaps in one of several tasks."""
    if isinstance(error, ExceptionGroup):
        return any(isinstance(one, Exception) and _is_lost(one) for one in error.exceptions)
    return isinstance(error, Lost)
