"""Answers of Equinix Metal when something fails. Its extension finds no codes in texts but throttling."""

from __future__ import annotations

from clouds.frame.operator import faults
from clouds.frame.operator.faults import Fault

FAULTS = {
    "quota": Fault("422: The project has reached its limit of devices."),
    "throttling": Fault("429: Too many requests: Throttling.", faults.RATE),
    "depleted": Fault("503: The metro has no provisionable servers of this plan."),
    "unauthorized": Fault("403: You may not perform this action."),
    "wrong-credentials": Fault("401: The authentication token is not valid."),
    "reservation-used": Fault("422: The hardware reservation is in use."),
    "image-missing": Fault("422: The operating system does not exist."),
    "dependency": Fault("422: The SSH key is in use and cannot be deleted."),
    "invalid": Fault("422: The value of a parameter is not valid."),
}
