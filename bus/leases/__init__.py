"""Leases on the bus: candidates come in, one owner goes out.

Leases, the lives that renew them, elections, and who is present.
"""
