"""The fence: a Lease lets one program create Machines in a namespace, windowbox or another controller.

No Lease is cached in memory. Each write reads it from the bus, where the Leases of windowbox are mirrored,
and from the API server only if the bus shows none that is ours.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from bus.clusters.clusters import Clusters
from windowbox.errors import Conflict, Forbidden, LeaseLost
from windowbox.models.extensions import instant
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINE_LEASES, NAMESPACES, ObjectRef
from workers.core.owned.manifests import manifest
from workers.core.recorder import Recorder

HOLDER = "windowbox"
DURATION = 3600
"""Seconds. Gardener's machine-controller-manager waits this long after our last renewal."""
RENEWAL = DURATION / 2
_FRESH = timedelta(seconds=RENEWAL / 2)
_LABELS = dict([MACHINE_LEASES.selector.split("=")])
"""Only Leases with these labels are mirrored."""


@dataclass(frozen=True)
class Held:
    """Another program that holds the Lease of a namespace."""

    by: str
    remaining: float
    """Seconds until its Lease expires."""

    def __str__(self) -> str:
        return (
            f"{self.by} holds the Lease {MACHINE_LEASES.named} of this namespace: scale the Deployment "
            "machine-controller-manager to 0, or set machines.mode to driver"
        )


@dataclass(frozen=True)
class Fence:
    """The Lease under which one run acts. All processes share one holder: the work queue keeps runs apart."""

    clusters: Clusters
    lease: ObjectRef
    recorder: Recorder
    uid: str
    """The uid of the Lease. Empty in a terminating namespace, which accepts no new Lease."""

    async def require(self) -> None:
        """Raise LeaseLost unless the Lease is still ours, and the one that the run began with."""
        seen = await self.recorder.read(self.lease)
        if seen is not None and self._allows(seen):
            return

        async def is_kept() -> bool:
            # The bus may not show yet the Lease that this run has just written.
            kube = await self.clusters.get(self.lease.cluster)
            live = await kube.find(MACHINE_LEASES, self.lease.namespace, self.lease.name)
            return self._allows(live) if live else not self.uid

        if not await self.recorder.call("lease kept", None, is_kept):
            raise LeaseLost(
                f"the Lease {self.lease.name} of {self.lease.namespace} was deleted or taken", retry_after=0.2
            )

    def _allows(self, lease: Object) -> bool:
        return lease.uid == self.uid and lease.spec.get("holderIdentity") == HOLDER


async def claim(clusters: Clusters, ref: ObjectRef, recorder: Recorder, now: datetime) -> Fence | Held:
    """Take or renew the Lease of an object's namespace. Returns its holder if that is another program."""
    namespace, name = ref.namespace, MACHINE_LEASES.named
    lease = ref._replace(kind=MACHINE_LEASES.id, name=name)
    seen = await recorder.read(lease)
    if seen is not None and _fresh(seen, now):
        return Fence(clusters, lease, recorder, seen.uid)

    async def renew() -> dict[str, Any]:
        kube = await clusters.get(lease.cluster)
        found = await kube.find(MACHINE_LEASES, namespace, name)
        renewed = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": HOLDER, "leaseDurationSeconds": DURATION, "renewTime": renewed}
        if found is None:
            try:
                body = manifest(MACHINE_LEASES, name, labels=_LABELS, spec=spec)
                return {"uid": (await kube.create(MACHINE_LEASES, namespace, body)).uid}
            except Forbidden:
                home = await kube.find(NAMESPACES, "", namespace)
                if home is None or not home.deleting:
                    raise
                return {"uid": ""}
        if held := holder(found, now):
            return asdict(held)
        if not _fresh(found, now) or not found.labels.items() >= _LABELS.items():
            metadata = {"resourceVersion": found.resource_version, "labels": _LABELS}
            try:
                await kube.merge(MACHINE_LEASES, namespace, name, {"metadata": metadata, "spec": spec})
            except Conflict as error:
                raise Conflict(f"{namespace}: another client renews the Lease", retry_after=0.2) from error
        return {"uid": found.uid}

    answer = await recorder.call("lease", None, renew, effect=True)
    return Fence(clusters, lease, recorder, answer["uid"]) if "uid" in answer else Held(**answer)


def holder(lease: Object, now: datetime) -> Held | None:
    """The other program that holds a Lease; None if it is free, or ours."""
    by, renewed = str(lease.spec.get("holderIdentity") or ""), instant(lease.spec.get("renewTime"))
    seconds = lease.spec.get("leaseDurationSeconds")
    if not by or by == HOLDER or renewed is None or not isinstance(seconds, int):
        return None
    remaining = (renewed - now).total_seconds() + seconds
    return Held(by, remaining) if remaining > 0 else None


def _fresh(lease: Object, now: datetime) -> bool:
    """Whether the Lease is ours and needs no renewal yet. Clocks of processes may differ a little."""
    renewed = instant(lease.spec.get("renewTime"))
    ours = lease.spec.get("holderIdentity") == HOLDER and lease.spec.get("leaseDurationSeconds") == DURATION
    return ours and renewed is not None and abs(now - renewed) < _FRESH
