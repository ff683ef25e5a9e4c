"""Services of type LoadBalancer.

In: changed Services, nodes and EndpointSlices. Out: addresses, statuses, and an Envoy for the traffic.
`service` reconciles a Service, `ipam` allocates its address (`allocator.py`), `edge` and `envoy` serve it.
"""
