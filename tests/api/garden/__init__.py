"""The access to the garden."""
