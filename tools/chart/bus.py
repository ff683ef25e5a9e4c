"""What the streams ask of a NATS server, for the chart."""

from __future__ import annotations

import yaml

from bus import streams
from windowbox.settings.settings import ObjectsSettings


def other_streams() -> int:
    """Bytes that all streams but OBJECTS may hold."""
    return sum(one["max_bytes"] for one in streams.streams(1) if one["name"] != streams.OBJECTS)


def text() -> str:
    head = (
        "# Written by `make generate` from bus/streams.py: MiB of OBJECTS by default, bytes of all others.\n"
    )
    return head + yaml.safe_dump({"objects": ObjectsSettings().size, "others": other_streams()})
