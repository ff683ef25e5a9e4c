"""Health conditions of extension objects: what is checked, and what is said of it."""
