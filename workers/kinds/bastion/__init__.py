"""Bastions come in; a machine with an SSH server, and a load balancer for the permitted sources go out."""
