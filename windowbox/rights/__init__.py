"""The rights of each role in clusters.

The table of kinds and settings come in; RBAC rules and webhook configurations go out.
"""
