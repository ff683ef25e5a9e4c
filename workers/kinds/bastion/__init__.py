"""Bastions: a machine with an SSH server, and a load balancer that lets in whom the Bastion names."""
