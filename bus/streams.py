"""The streams: subjects, size and age. Created at start, and updated when this file changes."""

from __future__ import annotations

import logging
from typing import Any

from bus import schema
from bus.transport.connection import ApiError, Bus
from windowbox.errors import Refused
from windowbox.settings.bussettings import Retention

logger = logging.getLogger(__name__)

OBJECTS, TRIGGERS, WORK, LATER, INTENTS, JOURNAL, REVIEWS = (
    "OBJECTS",
    "TRIGGERS",
    "WORK",
    "LATER",
    "INTENTS",
    "JOURNAL",
    "REVIEWS",
)
LEASES, CLUSTERS, ADDRESSES, EDGES = "leases", "clusters", "addresses", "edges"

LEASE_SECONDS = 3.0
"""How long a lease lives without being renewed: a killed owner is replaced soon after."""

_GIB = 1 << 30
_HOUR = 3600 * 10**9
_STREAM_NOT_FOUND = 10059


DEFAULT = Retention()


def streams(replicas: int, objects: Retention = DEFAULT) -> list[dict[str, Any]]:
    """What the server is asked for. Every stream is bounded: by subject, by age, or by size."""
    kept: dict[str, Any] = {
        "storage": "file",
        "num_replicas": replicas,
        "allow_direct": True,
        # A full stream says so. What it threw away instead would be missed by those who read it.
        "discard": "new",
        "retention": "limits",
        "max_msgs_per_subject": 1,
        "duplicate_window": 120 * 10**9,
        "metadata": schema.CURRENT.metadata,
    }
    return [
        {
            **kept,
            "name": OBJECTS,
            "subjects": ["object.>"],
            "max_msgs_per_subject": objects.versions,
            "max_bytes": objects.size,
        },
        {**kept, "name": TRIGGERS, "subjects": ["trigger.>"], "max_bytes": _GIB},
        {
            **kept,
            "name": WORK,
            "subjects": ["work.>"],
            "retention": "workqueue",
            "discard_new_per_subject": True,
            "max_bytes": _GIB,
        },
        {
            **kept,
            "name": LATER,
            "subjects": ["later.>", "due.>"],
            "allow_msg_schedules": True,
            "discard": "old",  # the server wants it so where it keeps schedules
            "max_bytes": _GIB,
        },
        {**kept, "name": INTENTS, "subjects": ["intent.>"], "max_bytes": _GIB},
        {
            **kept,
            "name": JOURNAL,
            "subjects": ["run.>", "start.>", "settings.>"],
            "max_msgs_per_subject": 256,
            "max_age": 24 * _HOUR,
            "discard": "old",
            "max_bytes": _GIB,
        },
        {  # after JOURNAL, whose older versions have this subject
            **kept,
            "name": REVIEWS,
            "subjects": ["review.>"],
            "max_msgs_per_subject": 64,
            "max_age": 24 * _HOUR,
            "discard": "old",
            "max_bytes": _GIB // 4,
        },
        _bucket(kept, LEASES, max_age=int(LEASE_SECONDS * 1e9), duplicate_window=int(LEASE_SECONDS * 1e9)),
        _bucket(kept, CLUSTERS),
        _bucket(kept, ADDRESSES),
        _bucket(kept, EDGES),
    ]


def _bucket(kept: dict[str, Any], name: str, **limits: int) -> dict[str, Any]:
    # A key that ages away leaves a marker for a while, so that those who wait for it are told.
    return {
        **kept,
        "name": f"KV_{name}",
        "subjects": [f"$KV.{name}.>"],
        "allow_rollup_hdrs": True,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": 60 * 10**9,
        "max_bytes": 64 << 20,
        **limits,
    }


async def ensure(bus: Bus, replicas: int = 1, objects: Retention = DEFAULT) -> list[str]:
    """Make the streams what this file says. Returns what was done, in words; nothing if all was well."""
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
        if schema.is_newer(found):  # it has the say, until all processes are as new
            continue
        wanted["metadata"] = {**(found.get("metadata") or {}), **wanted["metadata"]}
        changed = sorted(k for k, v in wanted.items() if not _same(found.get(k), v))
        if changed:
            await _update(bus, {**found, **wanted}, changed)
            done.append(f"updated stream {name}: {', '.join(changed)}")
    for line in done:
        logger.info("%s", line)
    return done


async def _update(bus: Bus, config: dict[str, Any], changed: list[str]) -> None:
    name = config["name"]
    try:
        await bus.api(f"STREAM.UPDATE.{name}", config)
    except ApiError as error:
        raise Refused(
            f"stream {name} has other settings than this version needs ({', '.join(changed)}), "
            f"and the server cannot change them in place: {error}. Stop windowbox, remove the stream with "
            f"`nats stream rm {name}` and start again: what it held is read anew from the cluster."
        ) from error


def _same(found: object, wanted: object) -> bool:
    # The server leaves out what has its default.
    return found == wanted or (not found and not wanted)
