"""What a process runs for each pool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from workers.backups import pool as backups
from workers.bastion import pool as bastion
from workers.dnsrecord import pool as dnsrecord
from workers.exposure import pool as exposure
from workers.extension import pool as extension
from workers.heartbeat import pool as heartbeat
from workers.infrastructure import pool as infrastructure
from workers.ingress import pool as ingress
from workers.loadbalancer import pool as loadbalancer
from workers.operatingsystemconfig import pool as operatingsystemconfig
from workers.serving import Common, Parts, Serving, parts

EXTENSIONS: dict[str, Callable[[Common], Serving]] = {
    "bastion": bastion.serving,
    "dnsrecord": dnsrecord.serving,
    "exposure": exposure.serving,
    "infrastructure": infrastructure.serving,
    "operatingsystemconfig": operatingsystemconfig.serving,
    **backups.SERVINGS,
    **extension.SERVINGS,
}
"""Pools whose objects have the life cycle of extensions."""

OTHERS: dict[str, Callable[[Common], Awaitable[Parts]]] = {
    heartbeat.POOL: heartbeat.assembled,
    ingress.POOL: ingress.assembled,
    loadbalancer.POOL: loadbalancer.assembled,
}

_ENABLED: dict[str, Callable[[Common], bool]] = {
    **dict.fromkeys(backups.SERVINGS, backups.enabled),
    heartbeat.POOL: heartbeat.enabled,
    loadbalancer.POOL: loadbalancer.enabled,
}


async def assembled(common: Common, pool: str) -> Parts | None:
    """What a process runs for a pool; None where its settings leave the pool to other processes."""
    if pool in _ENABLED and not _ENABLED[pool](common):
        return None
    if serving := EXTENSIONS.get(pool):
        return parts(common, serving(common))
    return await OTHERS[pool](common)
