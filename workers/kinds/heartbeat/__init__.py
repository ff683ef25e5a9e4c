"""The heartbeat: the Lease that shows Gardener that windowbox works."""
