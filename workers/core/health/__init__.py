"""Health conditions of extension objects: checks and their results."""
