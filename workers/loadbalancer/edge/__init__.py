"""The edge of one host. In: Services, nodes, EndpointSlices and allocations from the bus.

Out: Envoy's load balancers, and the state of each in the bucket `edges`. `controller` is the reconcile loop.
"""
