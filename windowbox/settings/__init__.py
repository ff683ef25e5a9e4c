"""The settings: from flags, environment and file, to values that are checked once.

Values go to every room above. Knows the models and the table of kinds, and nobody above.
"""
