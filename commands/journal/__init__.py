"""Commands that read the journal: `trace`, `top`, `record` and `replay`.

Records of runs and versions of objects come in from the bus; text and JSON go out.
"""
