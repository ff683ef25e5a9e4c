"""Infrastructures come in; the namespace, address pools and policies for the machines of a Shoot go out."""
