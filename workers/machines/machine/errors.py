"""Failures of the driver, with the codes of machine-controller-manager (B5)."""

from __future__ import annotations

from windowbox.errors import (
    Forbidden,
    Malformed,
    Missing,
    TransientError,
    Unreachable,
    WindowboxError,
)

INVALID = "InvalidArgument"
INTERNAL = "Internal"
EXHAUSTED = "ResourceExhausted"
DENIED = "PermissionDenied"
UNAVAILABLE = "Unavailable"
UNKNOWN = "Unknown"

_QUOTA = "ERR_INFRA_QUOTA_EXCEEDED"
_LONGEST = 1500
"""Characters of a description: a hostile server must not fill the status of Machines."""


def code(error: WindowboxError) -> str:
    """By which consumers of a Machine's status tell failures apart."""
    if _QUOTA in error.codes:
        return EXHAUSTED
    match error:
        case Malformed():
            return INVALID
        case Forbidden():
            return DENIED
        case Unreachable():
            return UNAVAILABLE
        case Missing():
            return INTERNAL
        case TransientError():
            return UNKNOWN
        case _:
            return INTERNAL


def text(error: WindowboxError) -> str:
    """As machine-controller-manager spells it, and parses it again: two groups in brackets."""
    message = str(error)[:_LONGEST].replace("[", "(").replace("]", ")")
    return f"machine codes error: code = [{code(error)}] message = [{message}]"
