"""IP address management: the bucket `addresses` holds all allocations.

In: `allocator.allocate(store, request)` for one Service. Out: addresses, a queue place, or a rejection.
"""
