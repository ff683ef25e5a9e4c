"""Machines that have failed."""

from __future__ import annotations

from collections.abc import Iterable

from windowbox.errors import TransientError
from windowbox.models.objects import Object
from workers.core.health import checks

RETRY_AFTER = 30.0
"""Seconds until machines are looked at again of which one has failed."""


def require_none(deployments: Iterable[Object]) -> None:
    """Raise the failure of the first machine that has failed."""
    if failed := checks.failed_machines(deployments):
        name, reason = failed[0]
        raise TransientError(f"machine {name} failed: {reason}", retry_after=RETRY_AFTER)
