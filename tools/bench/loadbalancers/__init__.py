"""Benchmarks of load balancers, from a Service in the API to clients that connect through Envoy.

`lives.py` has what all of them use: Services in a sandbox with nodes. Each returns a `Report`.
"""
