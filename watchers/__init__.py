"""The cluster speaks: every change of every object is put on the bus."""
