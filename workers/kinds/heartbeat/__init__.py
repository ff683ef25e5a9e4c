"""The health of the processes comes in; the Lease that shows Gardener that windowbox works goes out."""
