"""Envoy: its configuration files, its admin interface, and where it runs."""
