"""The kinds of Gardener's extension API, as values.

Raw objects come in; specs, statuses and definitions of kinds go out.
"""
