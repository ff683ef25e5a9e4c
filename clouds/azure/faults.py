"""Answers of Azure when something fails."""

from __future__ import annotations

from clouds.frame.operator import faults
from clouds.frame.operator.faults import Fault

FAULTS = {
    "quota": Fault(
        "QuotaExceeded: The operation results in exceeding approved Total Regional Cores quota.",
        faults.QUOTA,
    ),
    "throttling": Fault("TooManyRequests: Too many requests of this subscription: Throttling.", faults.RATE),
    "depleted": Fault(
        "ZonalAllocationFailed: There is not enough capacity for this VM size in this zone.", faults.DEPLETED
    ),
    "missing-principal": Fault(
        "ParentResourceNotFound: The user-assigned identity does not exist.", faults.CONFIGURATION
    ),
    "unauthorized": Fault(
        "AuthorizationFailed: The client may not perform this action over this scope.", faults.UNAUTHORIZED
    ),
    "wrong-credentials": Fault(
        "invalid_client: AADSTS7000215: The client secret is wrong.", faults.UNAUTHENTICATED
    ),
    "reservation-used": Fault("AllocationFailed: The capacity reservation group has no capacity left."),
    "image-missing": Fault("PlatformImageNotFound: The image does not exist.", faults.CONFIGURATION),
    "dependency": Fault(
        "InUseSubnetCannotBeDeleted: The subnet is in use and cannot be deleted.", faults.DEPENDENCIES
    ),
    "invalid": Fault("InvalidParameter: The value of a parameter is not valid.", faults.CONFIGURATION),
}
