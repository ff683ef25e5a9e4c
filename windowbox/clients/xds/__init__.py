"""Envoy's API (xDS): its messages, and the gRPC server over which Envoys get their configuration.

In: resources as in Envoy's JSON, and requests of Envoys. Out: encoded resources, and responses.
"""
