"""The pools of kinds that make objects, by name."""

from __future__ import annotations

from collections.abc import Callable

from workers.backups import pool as backups
from workers.bastion import pool as bastion
from workers.exposure import pool as exposure
from workers.extension import pool as extension
from workers.heartbeat import pool as heartbeat
from workers.infrastructure import pool as infrastructure
from workers.ingress import pool as ingress
from workers.operatingsystemconfig import pool as operatingsystemconfig
from workers.serving import Common, Parts, Serving, parts

EXTENSIONS: dict[str, Callable[[Common], Serving]] = {
    "bastion": bastion.serving,
    "exposure": exposure.serving,
    "infrastructure": infrastructure.serving,
    "operatingsystemconfig": operatingsystemconfig.serving,
    **backups.SERVINGS,
    **extension.SERVINGS,
}
"""Those whose objects have the life cycle of extensions."""


def _pool(serving: Callable[[Common], Serving]) -> Callable[[Common], Parts | None]:
    return lambda common: parts(common, serving(common))


def _where_backups_are(serving: Callable[[Common], Serving]) -> Callable[[Common], Parts | None]:
    return lambda common: parts(common, serving(common)) if backups.kept_here(common.kinds.backup) else None


POOLS: dict[str, Callable[[Common], Parts | None]] = {
    **{name: _pool(serving) for name, serving in EXTENSIONS.items()},
    **{name: _where_backups_are(serving) for name, serving in backups.SERVINGS.items()},
    heartbeat.POOL: heartbeat.assembled,
    ingress.POOL: ingress.assembled,
}
"""What a process has to run for each; None where its settings say that another host does it."""
