"""Envoy: its configuration files, its admin interface, and where it runs.

Comes in: load balancers. Goes out: files that Envoy reads, and for each load balancer, why it is not served.
"""
