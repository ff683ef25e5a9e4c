"""What Infrastructures say of their runs."""

from workers.lifecycle.statuses import Phrases, Words

WORDS = Words(
    reconcile=Phrases(
        "Reconciling the infrastructure",
        "Successfully reconciled infrastructure",
        "Error reconciling infrastructure",
    ),
    delete=Phrases(
        "Deleting the Infrastructure",
        "Successfully deleted Infrastructure",
        "Error deleting Infrastructure",
    ),
    migrate=Phrases(
        "Starting migration of the Infrastructure",
        "Successfully migrated Infrastructure",
        "Error migrating Infrastructure",
    ),
    restore=Phrases(
        "Restoring the Infrastructure",
        "Successfully restored Infrastructure",
        "Error restoring Infrastructure",
    ),
)
