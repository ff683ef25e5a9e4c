"""Envoy: its configuration files, its admin interface, and where it runs.

In: load balancers. Out: files that Envoy reads, and for each load balancer, why it is not served.
"""
