"""Kinds that make objects: their parts of `trace` and of the demo."""
