"""Leases on the bus: candidates come in, one owner goes out.

Leases, the lives that renew them, elections of the queue's leader, and which processes are present.
"""
