"""Kinds that make objects, as a person sees them: their parts of `trace` and of the demo."""
