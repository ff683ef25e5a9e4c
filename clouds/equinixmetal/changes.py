"""What updates of Shoots of type equinixmetal do."""

from __future__ import annotations

from clouds.equinixmetal import machines
from clouds.equinixmetal.api import ControlPlaneConfig, WorkerConfig
from clouds.frame.changes.effects import WORKERS, Changes, Kind, Rule

_RESERVATIONS = Rule(Kind.IN_PLACE, "machines that are made later try these reservations first", "EQX-W1")
_FACILITIES = Rule(Kind.IN_PLACE, "machines that are made later land in one of these facilities", "EQX-W2")

CHANGES = Changes(
    machines=machines.MACHINES,
    hash_inputs=machines.hash_inputs,
    infrastructure=None,
    control_plane=ControlPlaneConfig,
    worker=WorkerConfig,
    rules={
        f"{WORKERS}[].providerConfig.reservationIDs": [_RESERVATIONS],
        f"{WORKERS}[].providerConfig.reservedDevicesOnly": [_RESERVATIONS],
        f"{WORKERS}[].zones": [_FACILITIES],
    },
    annotations={},
    by_zone=False,
)
