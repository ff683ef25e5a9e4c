"""The pool `operatingsystemconfig`, put together."""

from __future__ import annotations

from windowbox.kinds import Served
from workers.operatingsystemconfig.actuator import KIND, OperatingSystemConfigActuator
from workers.serving import Common, Serving


def serving(common: Common, row: Served) -> Serving:
    return Serving(KIND, OperatingSystemConfigActuator(common.targets))
