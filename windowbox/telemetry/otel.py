"""Spans for an OpenTelemetry collector; needs the extra `otel`."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from typing import Any

from windowbox.errors import PermanentError

Export = Callable[[str, str, str, int, int, Mapping[str, str]], None]


def exporter(service: str) -> Export:
    """A function that hands finished spans to the collector named in the environment."""
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
    atexit.register(processor.shutdown)  # which sends what is left

    def context(traceparent: str) -> Any:
        _, trace, span, _ = traceparent.split("-")
        return SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(1))

    def export(
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

    return export
