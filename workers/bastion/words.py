"""What Bastions say of their runs."""

from workers.lifecycle.statuses import Phrases, Words

_RECONCILE = Phrases(
    "Reconciling the Bastion", "Successfully reconciled Bastion", "Error reconciling Bastion"
)

WORDS = Words(
    reconcile=_RECONCILE,
    # The same success as above: so it has always been.
    delete=Phrases("Deleting the Bastion", "Successfully reconciled Bastion", "Error deleting Bastion"),
    # Nobody hands Bastions over to other seeds.
    migrate=_RECONCILE,
    restore=_RECONCILE,
)
