"""What of a Service cannot be served, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """A part of a Service that is turned down."""

    reason: str
    """In CamelCase, for programs."""
    note: str
    """Field, value and remedy, for people."""
    port: tuple[int, str] | None = None
    """The port that is not served, number and protocol; None: it concerns the whole Service."""
