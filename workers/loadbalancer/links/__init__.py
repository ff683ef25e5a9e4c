"""Addresses and routes of this host. In: what Envoys of this host need, and announcements of other hosts.

Out: addresses on its links, and announcements to the neighbours. The launcher imports it: it knows no models.
"""
