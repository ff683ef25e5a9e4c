"""The reconciler of Services. In: a Service, its addresses, and the edge's report about its load balancer.

Out: a finalizer, an allocation, a status and Events. `servicereconciler` is one run.
"""
