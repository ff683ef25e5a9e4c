"""At most one program makes Machines in a namespace: a Lease says whether it is windowbox."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from windowbox.clients.clusters import Clusters
from windowbox.errors import Conflict
from windowbox.models.extensions import instant
from windowbox.models.objects import Object
from windowbox.models.refs import HEARTBEATS, ObjectRef
from workers.recorder import Recorder

LEASES = HEARTBEATS._replace(named="machine-controller-manager")
HOLDER = "windowbox"
DURATION = 3600
"""Seconds. Gardener's machine-controller-manager waits as long for us after our last renewal."""
RENEWAL = DURATION / 2


@dataclass(frozen=True)
class Held:
    """Who makes the machines of a namespace, if it is not us."""

    by: str
    remaining: float
    """Seconds until it has to renew its Lease."""

    def __str__(self) -> str:
        return (
            f"{self.by} holds the Lease {LEASES.named} of this namespace: scale the Deployment "
            "machine-controller-manager to 0, or set machines.mode to driver"
        )


class Fence:
    """The Leases of all namespaces. All processes of windowbox share one holder: the queue divides them."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._ours: dict[tuple[str, str], datetime] = {}
        """Until when a Lease that this process has seen need not be renewed."""

    async def claim(self, ref: ObjectRef, recorder: Recorder) -> Held | None:
        """Take or renew the Lease of the object's namespace. Returns who has it, if somebody else has."""

        async def act() -> dict[str, Any] | None:
            now, home = datetime.now(UTC), (ref.cluster, ref.namespace)
            if self._ours.get(home, now) > now:
                return None
            held = await self._take(ref, now)
            if held is None:
                self._ours[home] = now + timedelta(seconds=RENEWAL)
            return {"by": held.by, "remaining": held.remaining} if held else None

        answer = await recorder.call("lease", None, act, effect=True)
        return Held(**answer) if answer else None

    async def _take(self, ref: ObjectRef, now: datetime) -> Held | None:
        kube = await self._clusters.get(ref.cluster)
        found = await kube.find(LEASES, ref.namespace, LEASES.named)
        if found and (held := holder(found, now)):
            return held
        spec = {
            "holderIdentity": HOLDER,
            "leaseDurationSeconds": DURATION,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        if found is None:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": LEASES.named},
                "spec": spec,
            }
            await kube.create(LEASES, ref.namespace, body)
            return None
        if _fresh(found, now):
            return None
        patch = {"metadata": {"resourceVersion": found.resource_version}, "spec": spec}
        try:
            await kube.merge(LEASES, ref.namespace, LEASES.named, patch)
        except Conflict as error:
            raise Conflict(f"{ref.namespace}: somebody else renews the Lease", retry_after=0.2) from error
        return None


def holder(lease: Object, now: datetime) -> Held | None:
    """Who else holds a Lease; None if it is free, or ours."""
    by, renewed = str(lease.spec.get("holderIdentity") or ""), instant(lease.spec.get("renewTime"))
    seconds = lease.spec.get("leaseDurationSeconds")
    if not by or by == HOLDER or renewed is None or not isinstance(seconds, int):
        return None
    remaining = (renewed - now).total_seconds() + seconds
    return Held(by, remaining) if remaining > 0 else None


def _fresh(lease: Object, now: datetime) -> bool:
    """Whether the Lease is ours and need not be renewed yet."""
    renewed = instant(lease.spec.get("renewTime"))
    ours = lease.spec.get("holderIdentity") == HOLDER and lease.spec.get("leaseDurationSeconds") == DURATION
    return ours and renewed is not None and timedelta() <= now - renewed < timedelta(seconds=RENEWAL / 2)
