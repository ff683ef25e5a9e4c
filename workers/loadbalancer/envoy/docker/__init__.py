"""Envoys in Docker containers: in the host's network, with prefixes routed to them, or one per Service.

Comes in: orders for Envoys. Goes out: calls of the Docker engine, and routes and addresses of this host.
"""
