"""A webhook: a pure function, and for which requests it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from webhooks.review import Context, Lookup, Review
from windowbox.models.objects import Json
from windowbox.models.webhooks import Registration

Act = Callable[[Review, Context], Json | None]
"""The object as it is to be, None if it may stay as it is; or Denied. It does not change what it is given."""


WITH_YAML = 16 << 10
"""Bytes of a request that is big, for webhooks that read YAML: it takes long."""


def _nothing(_: Review) -> Lookup | None:
    return None


@dataclass(frozen=True)
class Webhook:
    """What is done for the requests of a registration."""

    registration: Registration
    act: Act
    lookup: Callable[[Review], Lookup | None] = _nothing
    """Which other object `act` finds in its context for this review."""
    skip_deleting: bool = True
    """Objects under deletion are allowed unchanged, without a call of `act`."""
    big: int = 128 << 10
    """Bytes of a request from which on it is worked on in a thread, so that others are answered meanwhile."""
