"""The Lease of the heartbeat: its desired content, when it is renewed, and which events requeue it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import UTC, datetime
from typing import Any

from bus import subjects
from bus.messages import Announcement, Reason, Wish
from bus.transport.connection import Bus
from bus.workqueue.queue import Queue
from bus.workqueue.routing import PreviousVersion
from windowbox.errors import WindowboxError
from windowbox.models.extensions import instant
from windowbox.models.objects import Object
from windowbox.models.refs import HEARTBEATS, RUNTIME, ObjectRef
from windowbox.settings.kindsettings import HeartbeatSettings


def ref(namespace: str) -> ObjectRef:
    """The Lease that Gardener checks."""
    return ObjectRef(RUNTIME, HEARTBEATS.id, namespace, HEARTBEATS.named)


def spec(settings: HeartbeatSettings, now: datetime) -> dict[str, Any]:
    """The spec that a renewal writes."""
    renewed = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return _lasting(settings) | {"renewTime": renewed}


def remaining(lease: Object, settings: HeartbeatSettings, now: datetime) -> float:
    """Seconds until the Lease has to be renewed; 0 if that is due."""
    renewed = instant(lease.spec.get("renewTime"))
    lasting = _lasting(settings).items()
    if renewed is None or any(lease.spec.get(name) != value for name, value in lasting):
        return 0.0
    left = settings.interval - (now - renewed).total_seconds()
    if left > 2 * settings.interval:
        # The clock has jumped. Unchanged, the Lease would look fresh until then, even without windowbox.
        return 0.0
    # The clock of the host that renewed it may be a little ahead.
    return min(max(0.0, left), settings.interval)


def stale(seen: Object | None, live: Object | None) -> str:
    """Why watchers count as unhealthy: they have not announced the latest version. Empty if they have."""
    if live is None or (seen is not None and seen.resource_version == live.resource_version):
        return ""
    shown = f"version {seen.resource_version}" if seen is not None else "no Lease at all"
    return f"watchers show {shown}, the API has version {live.resource_version}"


def changed_by_others(old: Object, new: Object) -> bool:
    """Whether more than the renew time has changed."""
    return bool(_without_renew_time(old) != _without_renew_time(new))


def _without_renew_time(lease: Object) -> Any:
    return lease.uid, {name: value for name, value in lease.spec.items() if name != "renewTime"}


def _lasting(settings: HeartbeatSettings) -> dict[str, Any]:
    return {"holderIdentity": settings.holder, "leaseDurationSeconds": settings.interval}


logger = logging.getLogger(__name__)

_AGAIN = 1.0
_MISSED_INTERVALS = 5
"""Intervals after which the wish is repeated, in case the bus has lost the scheduled one."""


class HeartbeatMapping:
    """Triggers: changes of the Lease by others, and listings after a gap."""

    kinds: tuple[str, ...] = (HEARTBEATS.id,)
    owned: tuple[str, ...] = ()

    def __init__(self, lease: ObjectRef) -> None:
        self._lease = lease

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        key = subjects.without("object", change.stored.subject)
        if subjects.ref(key) != self._lease or change.operation == "ADDED":
            return []
        if change.operation != "MODIFIED" or change.omitted:
            return [key]
        old = await before.object()
        return [key] if old is None or changed_by_others(old, change.object()) else []

    def unfinished(self, object: Object) -> bool:
        return object.ref(self._lease.cluster, self._lease.kind) == self._lease


async def request_first_run(bus: Bus, queue: Queue, lease: ObjectRef, interval: float) -> None:
    """Request a run at the start, and whenever the bus may have lost the scheduled one. Runs for ever."""
    back = asyncio.Event()
    with bus.on_reconnect(back.set):
        while True:
            back.clear()
            try:
                await queue.remind(subjects.key(lease), Wish(reason=Reason.START))
            except WindowboxError as error:
                logger.info("heartbeat: %s; again in %s s", error, _AGAIN)
                await asyncio.sleep(_AGAIN)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MISSED_INTERVALS * interval):
                    await back.wait()
