"""The streams: their subjects, sizes and ages. Created at start, and updated when this file changes."""

from __future__ import annotations

import logging
from typing import Any

from bus import schema
from bus.transport.connection import ApiError, Bus
from windowbox.errors import Refused
from windowbox.settings.bussettings import Retention

logger = logging.getLogger(__name__)

OBJECTS, TRIGGERS, WORK, LATER = "OBJECTS", "TRIGGERS", "WORK", "LATER"
INTENTS, JOURNAL, REVIEWS = "INTENTS", "JOURNAL", "REVIEWS"
LEASES, CLUSTERS, ADDRESSES, EDGES, CLOUDS = "leases", "clusters", "addresses", "edges", "clouds"

LEASE_SECONDS = 3.0
"""How long a lease lives without being renewed: a killed owner is replaced soon after."""

_GIB = 1 << 30
_HOUR = 3600 * 10**9
_STREAM_NOT_FOUND = 10059


DEFAULT = Retention()


def streams(replicas: int, objects: Retention = DEFAULT) -> list[dict[str, Any]]:
    """The configurations of all streams. Each stream is bounded by subject, age, or size."""
    kept: dict[str, Any] = {
        "storage": "file",
        "num_replicas": replicas,
        "allow_direct": True,
        # A full stream refuses messages: dropping old ones instead would lose them for its readers.
        "discard": "new",
        "retention": "limits",
        "max_msgs_per_subject": 1,
        "duplicate_window": 120 * 10**9,
        "metadata": schema.CURRENT.metadata,
    }

    def stream(name: str, *of: str, **settings: object) -> dict[str, Any]:
        return {**kept, "name": name, "subjects": list(of), "max_bytes": _GIB, **settings}

    def bucket(name: str, **settings: object) -> dict[str, Any]:
        # An expired key leaves a marker for a while: processes that wait for its end receive it.
        return stream(
            f"KV_{name}",
            f"$KV.{name}.>",
            allow_rollup_hdrs=True,
            allow_msg_ttl=True,
            subject_delete_marker_ttl=60 * 10**9,
            **{"max_bytes": 64 << 20, **settings},
        )

    day: dict[str, Any] = {"max_age": 24 * _HOUR, "discard": "old"}
    lease = int(LEASE_SECONDS * 1e9)
    return [
        stream(OBJECTS, "object.>", max_msgs_per_subject=objects.versions, max_bytes=objects.size),
        stream(TRIGGERS, "trigger.>"),
        stream(WORK, "work.>", retention="workqueue", discard_new_per_subject=True),
        # The server requires `discard: old` for schedules.
        stream(LATER, "later.>", "due.>", allow_msg_schedules=True, discard="old"),
        stream(INTENTS, "intent.>"),
        stream(JOURNAL, "run.>", "start.>", "settings.>", max_msgs_per_subject=256, **day),
        stream(REVIEWS, "review.>", max_msgs_per_subject=64, max_bytes=_GIB // 4, **day),
        bucket(LEASES, max_age=lease, duplicate_window=lease),
        bucket(CLUSTERS),
        bucket(ADDRESSES),
        bucket(EDGES),
        bucket(CLOUDS),
    ]


async def ensure(bus: Bus, replicas: int = 1, objects: Retention = DEFAULT) -> list[str]:
    """Create missing streams and update others. Returns what was done, in words, if anything."""
    done = []
    for wanted in streams(replicas, objects):
        name = wanted["name"]
        try:
            found = (await bus.api(f"STREAM.INFO.{name}", repeat=True))["config"]
        except ApiError as error:
            if error.code != _STREAM_NOT_FOUND:
                raise
            await bus.api(f"STREAM.CREATE.{name}", wanted, repeat=True)
            done.append(f"created stream {name}")
            continue
        if schema.is_newer(found):  # the newer version decides, until all processes have it
            continue
        wanted["metadata"] = {**(found.get("metadata") or {}), **wanted["metadata"]}
        # The server leaves out settings that have their default.
        changed = sorted(k for k, v in wanted.items() if found.get(k) != v and (found.get(k) or v))
        if changed:
            try:
                await bus.api(f"STREAM.UPDATE.{name}", {**found, **wanted})
            except ApiError as error:
                raise Refused(
                    f"stream {name} has other settings than this version needs "
                    f"({', '.join(changed)}), and the server cannot change them in place: {error}. "
                    f"Stop windowbox, remove the stream with `nats stream rm {name}` and start again: "
                    "its content is read again from the cluster."
                ) from error
            done.append(f"updated stream {name}: {', '.join(changed)}")
    for line in done:
        logger.info("%s", line)
    return done
