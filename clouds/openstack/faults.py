"""Answers of OpenStack when something fails. Its nodes have no principals and no reservations."""

from __future__ import annotations

from clouds.frame.operator import faults
from clouds.frame.operator.faults import Fault

FAULTS = {
    "quota": Fault(
        "VolumeSizeExceedsAvailableQuota: The volume is larger than what is left of the quota.", faults.QUOTA
    ),
    "throttling": Fault("429: Too many requests: Throttling.", faults.RATE),
    # The extension takes it for a dependency.
    "depleted": Fault("No valid host was found. There are not enough hosts available.", faults.DEPENDENCIES),
    "unauthorized": Fault("PolicyNotAuthorized: The policy forbids this request.", faults.UNAUTHORIZED),
    "wrong-credentials": Fault("Authentication failed: 401.", faults.UNAUTHENTICATED),
    "image-missing": Fault("itemNotFound: There is no such image.", faults.CONFIGURATION),
    "dependency": Fault("NetworkInUse: There are ports in use on the network.", faults.DEPENDENCIES),
    "invalid": Fault("badRequest: Invalid value of an attribute.", faults.CONFIGURATION),
}
