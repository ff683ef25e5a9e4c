"""Commands for Shoots of other types: they need no cluster."""
