"""Flags, environment and file come in; settings go out, checked once.

Knows the models and the table of kinds.
"""
