"""Refusals: what of a Service is not served, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """A part of a Service that is not served."""

    reason: str
    """In CamelCase, for programs."""
    note: str
    """Field, value and remedy, for people."""
    port: tuple[int, str] | None = None
    """The port that is not served, number and protocol; None: it concerns the whole Service."""
