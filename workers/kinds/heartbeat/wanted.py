"""The Lease of the heartbeat: its desired content, and when it is renewed. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from windowbox.models.extensions import instant
from windowbox.models.objects import Object
from windowbox.models.refs import HEARTBEATS, RUNTIME, ObjectRef
from windowbox.settings.kindsettings import HeartbeatSettings


def ref(namespace: str) -> ObjectRef:
    """The Lease that Gardener looks at."""
    return ObjectRef(RUNTIME, HEARTBEATS.id, namespace, HEARTBEATS.named)


def spec(settings: HeartbeatSettings, now: datetime) -> dict[str, Any]:
    """What a renewal says."""
    renewed = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return _lasting(settings) | {"renewTime": renewed}


def remaining(lease: Object, settings: HeartbeatSettings, now: datetime) -> float:
    """Seconds until the Lease has to be renewed; 0 if that is due."""
    renewed = instant(lease.spec.get("renewTime"))
    if renewed is None or not _within(_lasting(settings), lease):
        return 0.0
    left = settings.interval - (now - renewed).total_seconds()
    if left > 2 * settings.interval:
        # A clock has jumped. Left so, the Lease would look fresh until then, whatever becomes of us.
        return 0.0
    # Who renewed it may have a clock that is a little ahead of ours.
    return min(max(0.0, left), settings.interval)


def stale(seen: Object | None, live: Object | None) -> str:
    """Why watchers cannot be well: they have not shown what was written long since. Empty if they have."""
    if live is None or (seen is not None and seen.resource_version == live.resource_version):
        return ""
    shown = f"version {seen.resource_version}" if seen is not None else "no Lease at all"
    return f"watchers show {shown}, the API has version {live.resource_version}"


def changed_by_others(old: Object, new: Object) -> bool:
    """Whether more has become of the Lease than that it was renewed."""
    return bool(_without_renew_time(old) != _without_renew_time(new))


def _without_renew_time(lease: Object) -> Any:
    return lease.uid, {name: value for name, value in lease.spec.items() if name != "renewTime"}


def _lasting(settings: HeartbeatSettings) -> dict[str, Any]:
    return {"holderIdentity": settings.holder, "leaseDurationSeconds": settings.interval}


def _within(wanted: dict[str, Any], lease: Object) -> bool:
    return all(lease.spec.get(name) == value for name, value in wanted.items())
