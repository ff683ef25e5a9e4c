"""What Extensions say of their runs."""

from workers.lifecycle.statuses import Phrases, Words

WORDS = Words(
    reconcile=Phrases(
        "Reconciling the Extension",
        "Successfully reconciled Extension",
        "Error reconciling Extension",
    ),
    delete=Phrases(
        "Deleting the Extension",
        "Successfully deleted the Extension",
        "Error deleting the Extension",
    ),
    migrate=Phrases(
        "Migrate Extension resource.",
        "Successfully migrated Extension resource",
        "Error migrating Extension resource",
    ),
    restore=Phrases(
        "Restoring Extension resource",
        "Successfully restored Extension resource",
        "Unable to restore Extension resource",
    ),
)
