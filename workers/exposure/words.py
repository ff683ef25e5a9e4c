"""What SelfHostedShootExposures say of their runs."""

from workers.lifecycle.statuses import Phrases, Words

_DONE = "Successfully reconciled SelfHostedShootExposure"

_RECONCILE = Phrases(
    "Reconciling the SelfHostedShootExposure", _DONE, "Error reconciling SelfHostedShootExposure"
)
# What has been deleted was "reconciled", too: so the contract has it.
_DELETE = Phrases("Deleting the SelfHostedShootExposure", _DONE, "Error deleting SelfHostedShootExposure")

# They are never handed over: the last two are not said.
WORDS = Words(reconcile=_RECONCILE, delete=_DELETE, migrate=_RECONCILE, restore=_RECONCILE)
