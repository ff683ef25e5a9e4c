"""What each role may do in clusters.

The table of kinds and settings come in; RBAC rules and webhook configurations go out.
"""
