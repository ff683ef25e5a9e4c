"""Logging: text on a terminal, JSON otherwise; each line holds its trace id."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Literal

import orjson

from windowbox.telemetry import tracing

LogFormat = Literal["auto", "human", "json"]


def configure(format: LogFormat, level: str) -> None:
    """Log to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    human = format == "human" or (format == "auto" and sys.stderr.isatty())
    handler.setFormatter(Human() if human else Structured())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # At lower levels, kubernetes_asyncio quotes kubeconfigs.
    for noisy in ("nats", "aiohttp.access", "asyncio", "kubernetes_asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class Structured(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if trace := tracing.trace_id(tracing.current()):
            line["trace"] = trace
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


class Human(logging.Formatter):
    """Short lines with the time of day."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        line = f"{at} {record.levelname.lower():<7} {record.name}: {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line
