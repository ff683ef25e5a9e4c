"""Answers of AWS when something fails."""

from __future__ import annotations

from clouds.frame.operator import faults
from clouds.frame.operator.faults import Fault

FAULTS = {
    "quota": Fault("VpcLimitExceeded: The maximum number of VPCs has been reached.", faults.QUOTA),
    "throttling": Fault("RequestLimitExceeded: Request limit exceeded.", faults.RATE),
    "depleted": Fault(
        "InsufficientInstanceCapacity: There is not enough capacity in the Availability Zone.",
        faults.DEPLETED,
    ),
    "missing-principal": Fault(
        "InvalidParameterValue: Invalid IAM Instance Profile name.", faults.CONFIGURATION
    ),
    "unauthorized": Fault(
        "UnauthorizedOperation: You are not authorized to perform this operation.", faults.UNAUTHORIZED
    ),
    "wrong-credentials": Fault(
        "AuthFailure: AWS was not able to validate the provided access credentials.", faults.UNAUTHENTICATED
    ),
    "reservation-used": Fault(
        "ReservationCapacityExceeded: The Capacity Reservation has no capacity for this request."
    ),
    "image-missing": Fault("InvalidAMIID.NotFound: The image id does not exist.", faults.CONFIGURATION),
    "dependency": Fault(
        "DependencyViolation: The object has a dependent object and cannot be deleted.", faults.DEPENDENCIES
    ),
    "invalid": Fault("InvalidParameterValue: The value of a parameter is not valid.", faults.CONFIGURATION),
}
