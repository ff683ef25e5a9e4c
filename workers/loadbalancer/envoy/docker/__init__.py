"""Envoys in Docker containers: in the host's network, with prefixes routed to them, or one per Service.

In: orders for Envoys. Out: calls of the Docker engine, and routes and addresses of this host.
"""
