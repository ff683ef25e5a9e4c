"""W3C trace context, carried in the headers of messages through all processes.

Exported as OpenTelemetry spans where the extra `otel` is installed and an endpoint is set in the
environment (`OTEL_EXPORTER_OTLP_ENDPOINT`); without it the ids still tie logs, journal and messages together.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import os
import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

from windowbox.errors import PermanentError

_current: contextvars.ContextVar[str] = contextvars.ContextVar("traceparent", default="")
_random = random.Random()  # seeded by the system; ids need to be unique, not secret
_exporter: Any = None


def current() -> str:
    """The trace context of the current task; empty outside of spans."""
    return _current.get()


def fresh() -> str:
    """A new trace."""
    return f"00-{_random.getrandbits(128):032x}-{_random.getrandbits(64):016x}-01"


def for_message() -> str:
    """The trace context for a message: that of the current task, or a new trace."""
    return current() or fresh()


def trace_id(traceparent: str) -> str:
    """The id of the trace; empty if the text is no trace context."""
    return traceparent.split("-")[1] if traceparent.count("-") == 3 else ""


@contextlib.contextmanager
def span(name: str, parent: str, **attributes: str) -> Iterator[str]:
    """Run the block as a span of the trace of `parent`, or of a new trace."""
    mine = f"{parent[:36]}{_random.getrandbits(64):016x}-01" if trace_id(parent) else fresh()
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
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanContext, TraceFlags
    except ImportError as error:
        raise PermanentError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed: "
            "pip install 'windowbox[otel]'"
        ) from error
    resource = Resource.create({"service.name": service})
    processor = BatchSpanProcessor(OTLPSpanExporter())
    atexit.register(processor.shutdown)  # sends the remaining spans

    def context(traceparent: str) -> Any:
        _, trace, span, _ = traceparent.split("-")
        return SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(1))

    def end(
        name: str, parent: str, mine: str, started: int, ended: int, attributes: Mapping[str, str]
    ) -> None:
        processor.on_end(
            ReadableSpan(
                name=name,
                context=context(mine),
                parent=context(parent) if parent.count("-") == 3 else None,
                resource=resource,
                attributes=dict(attributes),
                start_time=started,
                end_time=ended,
            )
        )

    _exporter = end
    return True
