"""The parts of each pool of the table of kinds.

The module of a row, such as `workers.machines.set.setpool`, has one of two functions:

* `serving(common, row)` for kinds with the life cycle of extensions,
* `assembled(common, row)` for others;

and `enabled(common)` where settings decide whether a process serves the pool.
"""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from windowbox.kinds import KINDS, POOLS, Served
from workers.core.serving import Common, Parts, Serving, parts

EXTENSIONS = tuple(row.pool for row in KINDS if row.type)
"""Pools whose objects have the life cycle of extensions."""


class PoolModule(Protocol):
    """The module of a pool."""

    def serving(self, common: Common, row: Served) -> Serving: ...
    async def assembled(self, common: Common, row: Served) -> Parts: ...
    def enabled(self, common: Common) -> bool: ...


async def assembled(common: Common, pool: str) -> Parts | None:
    """The parts of a pool; None if the settings leave the pool to other processes."""
    row = POOLS[pool]
    module = _module(row)
    if hasattr(module, "enabled") and not module.enabled(common):
        return None
    return parts(common, serving(common, pool)) if row.type else await module.assembled(common, row)


def serving(common: Common, pool: str) -> Serving:
    """A kind of extension object, and its actuator."""
    row = POOLS[pool]
    return _module(row).serving(common, row)


def _module(row: Served) -> PoolModule:
    return cast(PoolModule, importlib.import_module(row.module))
