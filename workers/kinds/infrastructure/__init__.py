"""Infrastructures: the namespace, the address pools and the policies that the machines of a Shoot live in."""
