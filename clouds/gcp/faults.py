"""Answers of GCP when something fails."""

from __future__ import annotations

from clouds.frame.operator import faults
from clouds.frame.operator.faults import Fault

FAULTS = {
    "quota": Fault("QUOTA_EXCEEDED: Quota 'CPUS' exceeded in this region.", faults.QUOTA),
    "throttling": Fault("googleapi: Error 429: Too many requests: Throttling.", faults.RATE),
    # The extension takes it for a quota.
    "depleted": Fault(
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS: The zone has not enough resources.", faults.QUOTA
    ),
    "missing-principal": Fault(
        "googleapi: Error 404: The service account does not exist, notFound", faults.CONFIGURATION
    ),
    "unauthorized": Fault(
        "googleapi: Error 403: A permission for the project is required, forbidden", faults.UNAUTHORIZED
    ),
    "wrong-credentials": Fault(
        "oauth2: cannot fetch token: invalid_client: There is no such client.", faults.UNAUTHENTICATED
    ),
    "reservation-used": Fault("googleapi: Error 400: The reservation has no instances left, badRequest"),
    "image-missing": Fault("googleapi: Error 404: The image does not exist, notFound", faults.CONFIGURATION),
    "dependency": Fault(
        "googleapi: Error 400: The network is already being used, resourceInUseByAnotherResource",
        faults.DEPENDENCIES,
    ),
    "invalid": Fault("googleapi: Error 400: Invalid value for a field, invalid", faults.CONFIGURATION),
}
