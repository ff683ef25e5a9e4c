"""Checks of kinds: which pools are served, and which objects of unserved kinds wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bus.leases import presence
from bus.transport.connection import connected
from sandbox.doctor.findings import Finding
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing, WindowboxError
from windowbox.kinds import POOLS, UNSERVED, Served, Unserved
from windowbox.rights import rbac
from windowbox.settings.settings import ClusterSettings, NatsSettings, Settings

_PATIENCE = 15
_NAMED = 5
"""Objects that are listed by name; the others are counted."""


def examine(settings: Settings) -> Iterator[Finding]:
    """All checks of kinds. Read-only."""
    if rbac.is_role(settings.nats.user):
        return  # a role may neither ask for processes nor list these kinds
    # If the bus does not answer, servers.bus has reported it.
    with contextlib.suppress(WindowboxError):
        found = asyncio.run(_processes(settings.nats))
        processes = Counter(pool["pool"] for process in found for pool in process.get("pools", ()))
        yield from [pool_finding(served, processes[pool]) for pool, served in POOLS.items()]
    try:
        yield from asyncio.run(_unserved(settings.cluster))
    except (WindowboxError, TimeoutError) as error:
        mend = "check the server in the kubeconfig"
        yield Finding("unserved kinds", "note", f"cannot be checked: {error}", mend)


def pool_finding(served: Served, processes: int) -> Finding:
    """Whether a pool is served, by this number of processes."""
    pool, what = served.pool, served.title
    if processes:
        several = "1 process" if processes == 1 else f"{processes} processes"
        return Finding(f"pool {pool}", "ok", f"{what}: {several}")
    mend = f"windowbox work --pool {pool}"
    if served.setting:
        mend = f"if you want it, set {served.setting}, then: {mend}"
    return Finding(f"pool {pool}", "note", f"{what}: no process serves it", mend)


async def _processes(settings: NatsSettings) -> list[Any]:
    async with connected(settings.access("windowbox doctor"), patience=5) as bus:
        return await presence.processes(bus)


async def _unserved(settings: ClusterSettings) -> list[Finding]:
    async with asyncio.timeout(_PATIENCE), kube.from_file(settings.kubeconfig, settings.context) as api:
        return [found for kind in UNSERVED if (found := await _of_kind(api, kind))]


async def _of_kind(api: Kube, unserved: Unserved) -> Finding | None:
    resource = unserved.resource
    what = f"kind {resource.kind}"
    try:
        found = api.objects(resource)
        left = sorted(
            [f"{one.namespace}/{one.name}" async for one in found if one.spec.get("type") == "local"]
        )
    except Missing:
        return None  # a cluster without the kind has no objects of it
    except WindowboxError as error:
        mend = "to know, give doctor settings with a kubeconfig that may list this kind"
        return Finding(what, "note", f"not served, and cannot be checked: {error}", mend)
    if not left:
        return Finding(what, "ok", "not served, and there is none of type local")
    named = ", ".join(left[:_NAMED]) + (f" and {len(left) - _NAMED} more" if len(left) > _NAMED else "")
    text = f"no process serves type local; clients wait in vain for {named}"
    return Finding(what, "note", text, unserved.remedy)
