"""The parts that all kinds share: the reconcile shell, reports, recorders, and the parts of a pool."""
