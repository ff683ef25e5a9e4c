"""What all kinds share: the reconcile shell, reports, recorders, and what a process runs for a pool."""
