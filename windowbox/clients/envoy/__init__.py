"""Envoy: what it is told, and how it is asked whether it has understood."""
