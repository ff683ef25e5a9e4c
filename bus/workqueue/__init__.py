"""The work queue: wishes come in, items go out to handlers, one at a time for each object.

Pools, routing of changes to keys, ranks of processes, and counts of crashes.
"""
