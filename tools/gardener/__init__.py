"""A real Gardener on top of windowbox: `windowbox gardener`, only in a checkout of the repository."""
