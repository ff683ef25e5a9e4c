"""Workers: reconcile objects. One package per pool, and what they share."""
