"""Checks of this machine, a sandbox, and the servers of a deployment."""
