"""The work queue: wishes come in, items go out to handlers, one at a time for each object.

Pools, routing of changes to keys, ranks, shares of clusters, and counts of crashes.
"""
