"""The pool `operatingsystemconfig`."""

from __future__ import annotations

from windowbox.kinds import Served
from workers.core.serving import Common, Serving
from workers.kinds.operatingsystemconfig.oscactuator import (
    KIND,
    OperatingSystemConfigActuator,
)


def serving(common: Common, row: Served) -> Serving:
    return Serving(KIND, OperatingSystemConfigActuator(common.targets))
