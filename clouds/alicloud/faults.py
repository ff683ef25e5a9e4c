"""Answers of Alibaba Cloud when something fails. Gardener uses no reservations there."""

from __future__ import annotations

from clouds.frame.operator import faults
from clouds.frame.operator.faults import Fault

FAULTS = {
    "quota": Fault("QuotaExceeded.Vpc: The number of VPCs has reached its limit.", faults.QUOTA),
    "throttling": Fault("Throttling.User: The request was denied due to flow control.", faults.RATE),
    "depleted": Fault("Zone.NotOnSale: The zone sells no more of this instance type.", faults.DEPLETED),
    "missing-principal": Fault("EntityNotExist.Role: The service-linked role does not exist."),
    "unauthorized": Fault(
        "Forbidden.RAM: The user is not authorized to operate on this resource.", faults.UNAUTHORIZED
    ),
    "wrong-credentials": Fault(
        "InvalidAccessKeyId.Inactive: The access key is disabled.", faults.UNAUTHENTICATED
    ),
    "image-missing": Fault("InvalidImageId.NotFound: The image does not exist.", faults.CONFIGURATION),
    "dependency": Fault("DependencyViolation: The VPC still has VSwitches.", faults.DEPENDENCIES),
    "invalid": Fault("InvalidParameter: Invalid value of a parameter.", faults.CONFIGURATION),
}
