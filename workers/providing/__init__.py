"""Which provider clusters take part: those that the objects we serve have their machines in."""
