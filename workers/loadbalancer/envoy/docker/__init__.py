"""Envoys in Docker containers: in the host's network, with addresses routed to them, or one per Service."""
