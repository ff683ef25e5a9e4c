"""Envoy's command line."""

from __future__ import annotations

import os

CONFIG = "envoy.json"
"""The file of the static configuration."""
DRAIN = 600
"""Seconds that connections survive the change or removal of their listener. Also Envoy's default."""


def arguments(folder: str) -> list[str]:
    """Envoy's arguments. `folder` holds the files, as Envoy sees it."""
    return [
        *("--config-path", f"{folder}/{CONFIG}"),
        *("--concurrency", str(min(2, os.cpu_count() or 1))),
        *("--drain-time-s", str(DRAIN)),
        *("--drain-strategy", "immediate"),
        *("--log-level", "warning"),
        # It says each second that there is no edge; what Envoy refuses, the edge reports.
        *("--component-log-level", "config:error"),
        # Envoys that share a network would share the abstract socket of hot restart, too, and not start.
        "--disable-hot-restart",
    ]
