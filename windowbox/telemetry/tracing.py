"""W3C trace context, carried in the headers of messages through all processes.

Exported as OpenTelemetry spans where the extra `otel` is installed and an endpoint is set in the
environment (`OTEL_EXPORTER_OTLP_ENDPOINT`); without it the ids still tie logs, journal and messages together.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import random
import time
from collections.abc import Iterator
from typing import Any

_current: contextvars.ContextVar[str] = contextvars.ContextVar("traceparent", default="")
_random = random.Random()  # seeded by the system; ids need to be unique, not secret
_exporter: Any = None


def current() -> str:
    """The current trace context."""
    return _current.get()


def fresh() -> str:
    """A new trace."""
    return f"00-{_random.getrandbits(128):032x}-{_random.getrandbits(64):016x}-01"


def trace_id(traceparent: str) -> str:
    return traceparent.split("-")[1] if traceparent.count("-") == 3 else ""


@contextlib.contextmanager
def span(name: str, parent: str, **attributes: str) -> Iterator[str]:
    """Run the block as a span of the trace of `parent`, or of a new trace."""
    mine = _child(parent)
    token = _current.set(mine)
    started = time.time_ns()
    try:
        yield mine
    finally:
        _current.reset(token)
        if _exporter is not None:
            _exporter(name, parent, mine, started, time.time_ns(), attributes)


def export(service: str) -> bool:
    """Send spans to the OpenTelemetry collector that the environment names; False if it names none."""
    global _exporter
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return False
    from windowbox.telemetry import otel

    _exporter = otel.exporter(service)
    return True


def _child(parent: str) -> str:
    if not trace_id(parent):
        return fresh()
    return f"{parent[:36]}{_random.getrandbits(64):016x}-01"
